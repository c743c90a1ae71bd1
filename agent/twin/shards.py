"""Which tensors of a twin go into which file, where the model that it stands for is in several."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_LAYER = re.compile(r"^blk\.\d+\.")


def divide(names: Iterable[str], shards: Sequence[Sequence[str]]) -> list[list[str]]:
    """The names by file, each list in the given order.

    A tensor that the twin has and the model has not goes into the first file that holds some of its layer, else into the first.

    Args:
        names: tensors of the twin.
        shards: tensors of the model by file; empty for one file.
    """
    place = {name: number for number, shard in enumerate(shards) for name in shard}
    layers: dict[str, int] = {}
    for name, number in place.items():
        if layer := _LAYER.match(name):
            layers.setdefault(layer[0], number)
    files: list[list[str]] = [[] for _ in shards or ((),)]
    for name in names:
        layer = _LAYER.match(name)
        files[place.get(name, layers.get(layer[0], 0) if layer else 0)].append(name)
    return files
