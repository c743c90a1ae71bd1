"""Where files come from; one module a kind of source, all with the interface of `source.py`."""
