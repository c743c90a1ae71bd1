"""The Python binding of llama.cpp: its structs and functions, and how they follow a build whose structs lie otherwise."""
