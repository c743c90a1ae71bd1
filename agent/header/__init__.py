"""Reads GGUF headers in bounds and derives the facts about layers that certification needs; loads nothing."""
