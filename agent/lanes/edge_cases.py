"""The lengths at which the code of a model changes its way: a window ends, a chunk is full, a convolution reaches back.

What goes wrong there does not show at any other length. The lengths are the model's own, read from its header.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from agent.header.model import Header

SHORTEST = 2  # prompts of one, two and three tokens
_NEIGHBOURS = 2  # sequences that decode while a third one begins
_ALIGNMENT = 16  # of a micro-batch; some architectures want a multiple of the number of sequences
_LARGE_MICRO_BATCH = 512
_FEW_GRAPHS = 16  # micro-batches that a prompt may span before a larger one is taken

# What reaches over the whole context: key of the metadata and what it is.
_OF_THE_CACHE = (
    ("attention.sliding_window", "the window of its attention"),
    ("attention.indexer.top_k", "the cells that its indexer keeps"),
    ("attention.indexer.block_size", "a block of its indexer"),
    ("attention.compress_ratios", "the tokens in a row of its compressed cache"),
)
# What happens within one graph.
_OF_THE_GRAPH = (
    ("ssm.conv_kernel", "the reach of its convolution"),
    ("shortconv.l_cache", "the reach of its short convolution"),
    ("ple.conv_kernel", "the reach of its embedding convolution"),
)
# Parts of tensors that tell a delta rule, and the chunk in which llama.cpp computes it (src/models/delta-net-base.cpp).
_DELTA_CHUNKS = (("ssm_f_a", 16), ("ssm_ba", 64), ("ssm_alpha", 64))


@dataclass(frozen=True, kw_only=True)
class Edge:
    """A length at which something changes.

    Attributes:
        size: in tokens.
        why: what changes there.
        micro_batch: of the contexts in which it is tried.
        decode_steps: greedy steps after a prompt.
    """

    size: int
    why: str
    micro_batch: int
    decode_steps: int

    @property
    def lengths(self) -> tuple[int, int, int]:
        """Prompts before, at and behind the edge."""
        return self.size - 1, self.size, self.size + 1

    @property
    def tokens(self) -> int:
        """Positions that the longest run takes."""
        return self.size + 1 + self.decode_steps


def edges_of(header: Header, *, micro_batch: int, decode_steps: int, long_steps: int) -> tuple[Edge, ...]:
    """Every edge of a model, in the order of size.

    Args:
        header: of the model.
        micro_batch: of the contexts, where the edge does not need another one.
        decode_steps: after a prompt.
        long_steps: after a prompt of about one micro-batch, since a state that drifts shows late.
    """
    in_graph, in_cache = _by_size(_graph_sizes(header)), _by_size(_cache_sizes(header))
    found = [
        Edge(size=SHORTEST, why="the shortest prompts", micro_batch=micro_batch, decode_steps=decode_steps),
        Edge(size=micro_batch, why="a full micro-batch", micro_batch=micro_batch, decode_steps=long_steps),
    ]
    for size, why in in_graph.items():
        # all of a prompt, and what neighbours decode meanwhile, in one graph
        room = max(micro_batch, _round_up(size + 1 + _NEIGHBOURS, _ALIGNMENT))
        found.append(Edge(size=size, why=why, micro_batch=room, decode_steps=decode_steps))
    for size, why in in_cache.items():
        room = micro_batch if size <= _FEW_GRAPHS * micro_batch else max(micro_batch, _LARGE_MICRO_BATCH)
        found.append(Edge(size=size, why=why, micro_batch=room, decode_steps=decode_steps))
    return tuple(sorted(found, key=lambda edge: (edge.size, edge.why)))


def _graph_sizes(header: Header) -> Iterator[tuple[int, str]]:
    for key, why in _OF_THE_GRAPH:
        yield from ((size, why) for size in _sizes(header, key))
    parts = {tensor.part.partition(".")[0] for tensor in header.tensors}
    chunk = next((size for part, size in _DELTA_CHUNKS if part in parts), None)
    if chunk:
        yield chunk, "a chunk of its delta rule"


def _cache_sizes(header: Header) -> Iterator[tuple[int, str]]:
    for key, why in _OF_THE_CACHE:
        yield from ((size, why) for size in _sizes(header, key))
    for size in _sizes(header, "attention.sliding_window"):
        yield 2 * size, "two windows, when the cells of the first are used again"


def _sizes(header: Header, key: str) -> set[int]:
    value = header.metadata.get(header.key(key))
    values = value if isinstance(value, tuple) else (value,)
    # below two there is no length before the edge
    return {size for size in values if isinstance(size, int) and not isinstance(size, bool) and size >= SHORTEST}


def _by_size(sizes: Iterator[tuple[int, str]]) -> dict[int, str]:
    reasons: defaultdict[int, list[str]] = defaultdict(list)
    for size, why in sizes:
        reasons[size].append(why)
    return {size: ", ".join(whys) for size, whys in reasons.items()}


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step
