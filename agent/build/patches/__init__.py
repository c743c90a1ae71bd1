"""The patch queue: its order and digest, whether it applies, and which upstream lines it takes away."""
