"""Twins: tiny random models of an architecture, built at run time from metadata alone."""
