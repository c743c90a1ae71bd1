"""Drives the product's own binaries: finds and probes them, runs their checks, validates what they report, and judges it."""
