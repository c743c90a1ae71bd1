"""How a converter stores what llama.cpp takes in two ways: one tensor or several."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

Shape = tuple[int, ...]

_QKV = re.compile(r"^(?P<head>.*attn_)(?P<which>[qkv])(?P<tail>\.(?:weight|bias))$")
_GATE_UP = re.compile(r"^(?P<head>.*ffn_)gate_up(?P<tail>_exps\.weight)$")


def stored_as(layout: Sequence[str], shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """The tensors that a file in this layout holds, in place of those that llama.cpp named.

    Args:
        layout: ``fused-qkv`` and ``split-gate-up``, see `agent.twin.recipe.Recipe`.
        shapes: name and shape in GGML's order.

    Raises:
        KeyError: an unknown layout.
    """
    result = dict(shapes)
    for name in layout:
        result = _LAYOUTS[name](result)
    return result


def _fuse_qkv(shapes: dict[str, Shape]) -> dict[str, Shape]:
    fused: dict[str, Shape] = {}
    for name, shape in shapes.items():
        found = _QKV.match(name)
        if found is None:
            fused[name] = shape
        elif found["which"] == "q":
            outputs = sum(shapes[f"{found['head']}{which}{found['tail']}"][-1] for which in "qkv")
            fused[f"{found['head']}qkv{found['tail']}"] = (*shape[:-1], outputs)
    return fused


def _split_gate_up(shapes: dict[str, Shape]) -> dict[str, Shape]:
    split: dict[str, Shape] = {}
    for name, shape in shapes.items():
        found = _GATE_UP.match(name)
        if found is None:
            split[name] = shape
        else:
            width, outputs, experts = shape
            for half in ("gate", "up"):
                split[f"{found['head']}{half}{found['tail']}"] = (width, outputs // 2, experts)
    return split


_LAYOUTS: Mapping[str, Callable[[dict[str, Shape]], dict[str, Shape]]] = {
    "fused-qkv": _fuse_qkv,
    "split-gate-up": _split_gate_up,
}
