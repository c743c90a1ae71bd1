"""Taps that reach into a running graph to do damage."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Container

import numpy as np

from agent.engine.library import GgmlTensor, load_library
from agent.engine.session import Tap


class CacheTap:
    """Does `damage` to a cache tensor once, just before the first node that uses it, and otherwise what `inner` does."""

    wanted: Container[int] | None = None

    def __init__(self, cache: str, width: int | None, damage: Callable[[int], None], inner: Tap | None) -> None:
        self._cache = cache.encode()
        self._width = width
        self._damage = damage
        self._inner = inner
        self._pending = True

    def ask(self, ordinal: int, pointer: int) -> bool:
        """Look for the cache among the sources of the node."""
        if self._pending:
            node = GgmlTensor.from_address(pointer)
            for source in (node.view_src, *node.src[:]):
                if source and self._is_meant(GgmlTensor.from_address(source)):
                    self._damage(source)
                    self._pending = False
                    break
        return wants(self._inner, ordinal, pointer)

    def _is_meant(self, tensor: GgmlTensor) -> bool:
        return bool(tensor.name == self._cache) and self._width in (None, tensor.ne[0])

    def done(self, ordinal: int, pointer: int) -> None:
        """As `inner` does."""
        if self._inner:
            self._inner.done(ordinal, pointer)


class NoiseTap:
    """Adds noise to the node at `ordinal`."""

    wanted: Container[int] | None = None

    def __init__(self, ordinal: int, inner: Tap | None) -> None:
        self._ordinal = ordinal
        self._inner = inner
        self._inner_wants = False

    def ask(self, ordinal: int, pointer: int) -> bool:
        """Want the noisy node, and what `inner` wants."""
        self._inner_wants = wants(self._inner, ordinal, pointer)
        return self._inner_wants or ordinal == self._ordinal

    def done(self, ordinal: int, pointer: int) -> None:
        """Disturb one value."""
        if ordinal == self._ordinal:
            patch_f32(pointer, lambda values: values + np.float32(0.25))
        if self._inner and self._inner_wants:
            self._inner.done(ordinal, pointer)


def wants(tap: Tap | None, ordinal: int, pointer: int) -> bool:
    """What a tap under another one would be asked."""
    if tap is None:
        return False
    return ordinal in tap.wanted if tap.wanted is not None else tap.ask(ordinal, pointer)


def zero(pointer: int) -> None:
    """Overwrite a tensor with zeros."""
    ggml = load_library().ggml
    n_bytes = ggml.ggml_nbytes(pointer)
    ggml.ggml_backend_tensor_set(pointer, (ctypes.c_uint8 * n_bytes)(), 0, n_bytes)


def flip_byte(pointer: int, offset: int) -> None:
    """Flip a high bit of one byte of a tensor."""
    ggml = load_library().ggml
    byte = ctypes.c_uint8()
    ggml.ggml_backend_tensor_get(pointer, ctypes.byref(byte), offset, 1)
    byte.value ^= 0x40
    ggml.ggml_backend_tensor_set(pointer, ctypes.byref(byte), offset, 1)


def patch_f32(pointer: int, change: Callable[[np.float32], np.float32]) -> None:
    """Change the first value of an f32 tensor."""
    ggml = load_library().ggml
    value = ctypes.c_float()
    ggml.ggml_backend_tensor_get(pointer, ctypes.byref(value), 0, 4)
    value.value = float(change(np.float32(value.value)))
    ggml.ggml_backend_tensor_set(pointer, ctypes.byref(value), 0, 4)
