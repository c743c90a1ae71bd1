"""The lanes: one check with one pass rule each."""
