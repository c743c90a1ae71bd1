"""Builds of llama.cpp: the layout of their structs, the patch queue they carry, and the archive they travel in."""
