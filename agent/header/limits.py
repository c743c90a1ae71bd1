"""Upper bounds of what a header may ask for: memory stays below 64 MB and time below a second, whatever it says."""

from __future__ import annotations

MAX_KEYS = 65_536
MAX_KEY_BYTES = 65_535
"""The GGUF specification's limit."""
MAX_TENSORS = 65_536
MAX_NAME_BYTES = 63
"""llama.cpp's GGML_MAX_NAME, less the final zero."""
MAX_DIMS = 4
"""llama.cpp's GGML_MAX_DIMS."""
MAX_LAYERS = 512
"""llama.cpp's LLAMA_MAX_LAYERS."""
MAX_STRING_BYTES = 1 << 30
"""llama.cpp's GGUF_MAX_STRING_LENGTH."""
MAX_ARRAY = 1 << 30
"""llama.cpp's GGUF_MAX_ARRAY_ELEMENTS."""
MAX_STRINGS = 4 << 20
"""Strings in all arrays together; the largest vocabularies need about one million."""
MAX_BUILT_STRING = 1 << 20
"""Bytes of a string that is kept; a longer one is skipped."""
MAX_BUILT_ARRAY = 4096
"""Numbers of an array that is kept; a longer one is skipped."""
MAX_BUILT = 16 << 20
"""Bytes of memory for keys, strings and arrays that are kept, together."""
MAX_ALIGNMENT = 1 << 20
MAX_SHARDS = 999
