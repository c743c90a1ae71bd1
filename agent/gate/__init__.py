"""The gate: receipts are judged against the plan, and the pin moves on a green verdict, or does not."""
