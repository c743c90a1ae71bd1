"""Runs a leg: llama.cpp in a child process, so that an abort in native code is a result."""
