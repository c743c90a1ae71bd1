"""Receipts: what one leg saw, bound to plan, build, files, runner and run attempt by digest."""
