"""A projector: an image and a prompt become text tokens and embeddings, by llama.cpp's own libmtmd.

libmtmd lies beside the libllama under test, and is loaded from there and from nowhere else: its answer to an image must be
that of the same build. It decides where the image stands in the prompt, how its vectors are placed and whether they attend to
one another; nothing of that is repeated here.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from agent.engine.embeddings import Embeddings
from agent.engine.library import load_library
from agent.engine.model import Model
from agent.engine.resource import Resource
from agent.engine.session import Tokens
from agent.errors import EngineUnavailable, ModelRefused, ProjectionFailed

Pixels = npt.NDArray[np.uint8]  # (height, width, 3): red, green, blue

# enum ggml_log_level (ggml.h); enum mtmd_input_chunk_type (mtmd.h)
_LOG_ERROR = 4
_TEXT, _IMAGE = 0, 1

_LIBRARIES = ("libmtmd.so", "libmtmd.dylib", "mtmd.dll", "libmtmd.dll")
_KEEP_ALIVE: list[Any] = []  # ctypes callbacks that C code holds


@functools.cache
def load_mtmd() -> ModuleType:
    """Load libmtmd once in this process, from the folder of the libraries under test, and silence its log below errors.

    Raises:
        EngineUnavailable: that folder holds none, or it cannot be loaded.
    """
    library = load_library()
    if not any((library.folder / name).exists() for name in _LIBRARIES):
        raise EngineUnavailable(f"{library.folder} holds no libmtmd: build llama.cpp with its target `mtmd`")
    os.environ["MTMD_CPP_LIB"] = str(library.folder)
    try:
        mtmd = importlib.import_module("llama_cpp.mtmd_cpp")
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        raise EngineUnavailable(f"the libmtmd in {library.folder} cannot be loaded: {error}") from error

    @library.llama.llama_log_callback  # type: ignore[untyped-decorator]
    def log(level: int, text: bytes, _user_data: Any) -> None:
        if level == _LOG_ERROR:
            sys.stderr.write(text.decode("utf-8", "replace"))
            sys.stderr.flush()

    mtmd.mtmd_log_set(log, ctypes.c_void_p(0))
    _KEEP_ALIVE.append(log)
    _check_layout(mtmd, library.folder)
    return mtmd


def _check_layout(mtmd: ModuleType, folder: Path) -> None:
    """Read the default parameters back: in a struct that lies otherwise than declared they are not what they are known to be."""
    params = mtmd.mtmd_context_params_default()
    known = (
        params.media_marker == mtmd.mtmd_default_marker(),
        params.image_min_tokens == params.image_max_tokens == -1,
    )
    if not all(known):
        raise EngineUnavailable(
            f"the mtmd_context_params of the libmtmd in {folder} do not lie as llama-cpp-python declares them: "
            "use a binding of the same release"
        )


class Projector(Resource):
    """A loaded projector for one model; free it with `close` or use it as a context manager."""

    def __init__(self, path: Path, model: Model, threads: int = 1, max_tokens: int | None = None) -> None:
        """Load `path`.

        Args:
            path: the mmproj file.
            model: the language model that the vectors are for.
            threads: of the CPU backend.
            max_tokens: of one image, where its size decides how many it gets; None for the file's own limit.

        Raises:
            EngineUnavailable: there is no libmtmd.
            ModelRefused: it is no projector, or none for this model. The library's own words are on standard error.
        """
        self._mtmd: Any = load_mtmd()
        self._model = model
        params = self._mtmd.mtmd_context_params_default()
        params.use_gpu = not model.device.is_cpu
        if params.use_gpu:
            params.device = model.device.handle
        params.n_threads = threads
        params.print_timings = params.warmup = False
        if max_tokens is not None:
            params.image_max_tokens = max_tokens
        self.handle: Any = self._mtmd.mtmd_init_from_file(str(path).encode(), model.handle, params)
        if not self.handle:
            raise ModelRefused(f"libmtmd does not load {path.name} for {model.path.name}: see its message above")
        if not self._mtmd.mtmd_support_vision(self.handle):
            self.close()
            raise ModelRefused(f"{path.name} is a projector that takes no image")

    @property
    def causal(self) -> bool:
        """True if the vectors of an image attend to those before them only."""
        return not self._mtmd.mtmd_decode_use_non_causal(self.handle, None)

    def read(self, before: str, pixels: Pixels, after: str) -> tuple[Tokens | Embeddings, ...]:
        """The prompt `before`, the image, `after`, as what is decoded one after the other from position 0 on.

        Raises:
            ProjectionFailed: the library does not take the image, or its vectors are not finite.
        """
        mtmd, height, width = self._mtmd, *pixels.shape[:2]
        held = np.ascontiguousarray(pixels)
        prompt = before.encode() + mtmd.mtmd_default_marker() + after.encode()
        text = mtmd.mtmd_input_text(prompt, len(prompt), False, True)
        with contextlib.ExitStack() as stack:
            bitmap = mtmd.mtmd_bitmap_init(width, height, held.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8)))
            stack.callback(mtmd.mtmd_bitmap_free, bitmap)
            chunks = mtmd.mtmd_input_chunks_init()
            stack.callback(mtmd.mtmd_input_chunks_free, chunks)
            status = mtmd.mtmd_tokenize(self.handle, chunks, ctypes.byref(text), (ctypes.c_void_p * 1)(bitmap), 1)
            if status != 0:
                raise ProjectionFailed(f"mtmd_tokenize returned {status} for an image of {width} x {height}")
            return tuple(self._segments(chunks))

    def _segments(self, chunks: Any) -> Iterator[Tokens | Embeddings]:
        mtmd, position = self._mtmd, 0
        for index in range(mtmd.mtmd_input_chunks_size(chunks)):
            chunk = mtmd.mtmd_input_chunks_get(chunks, index)
            count = mtmd.mtmd_input_chunk_get_n_tokens(chunk)
            kind = mtmd.mtmd_input_chunk_get_type(chunk)
            if kind == _TEXT:
                length = ctypes.c_size_t()
                tokens = mtmd.mtmd_input_chunk_get_tokens_text(chunk, ctypes.byref(length))
                yield np.ctypeslib.as_array(tokens, (count,)).astype(np.int32)
            elif kind == _IMAGE:
                yield self._encode(chunk, count, position)
            else:
                raise ProjectionFailed(f"mtmd_tokenize made a chunk of kind {kind} of an image")
            position += mtmd.mtmd_input_chunk_get_n_pos(chunk)

    def _encode(self, chunk: Any, count: int, position: int) -> Embeddings:
        mtmd, facts = self._mtmd, self._model.facts
        status = mtmd.mtmd_encode_chunk(self.handle, chunk)
        if status != 0:
            raise ProjectionFailed(f"mtmd_encode_chunk returned {status} for {count} image tokens")
        vectors = np.ctypeslib.as_array(mtmd.mtmd_get_output_embd(self.handle), (count, facts.n_embd_inp)).copy()
        if not np.isfinite(vectors).all():
            raise ProjectionFailed("the projector's vectors are not finite")
        image = mtmd.mtmd_input_chunk_get_tokens_image(chunk)
        places = [mtmd.mtmd_image_tokens_get_decoder_pos(image, position, index) for index in range(count)]
        # in the order in which mtmd-helper gives them to llama_decode: time, y, x, the fourth
        axes = np.array([[place.t, place.y, place.x, place.z] for place in places], dtype=np.int32).T
        return Embeddings(
            vectors=vectors,
            positions=axes[: facts.position_axes],
            span=mtmd.mtmd_input_chunk_get_n_pos(chunk),
            causal=not mtmd.mtmd_decode_use_non_causal(self.handle, chunk),
        )

    def close(self) -> None:
        """Free the projector."""
        if self.handle:
            self._mtmd.mtmd_free(self.handle)
            self.handle = None
