"""A reference prefix cache: a radix index over token prefixes, whose values hold the state of a sequence."""
