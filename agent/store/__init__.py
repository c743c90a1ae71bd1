"""Bytes that are what the plan says: a store addressed by sha256, and the sources that fill it."""
