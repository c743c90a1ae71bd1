"""Reporters: they print; checks do not."""
