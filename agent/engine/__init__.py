"""The engine: llama.cpp through its C API, a split executed bit for bit, and the graph that says what must cross it."""
