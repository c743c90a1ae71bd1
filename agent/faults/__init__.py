"""Seeded faults: libraries that do one thing wrong, which the lanes must notice."""
