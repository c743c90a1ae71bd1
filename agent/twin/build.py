"""Builds a twin's file: llama.cpp names the tensors, the weights are a function of the names, the metadata is the recipe's.

The file is written here and not by `llama_model_save_to_file`: that function writes keys of its own in place of those that a
converter writes (so that no header of a twin would look like one of the real family), keeps every optional tensor, and
refuses some architectures.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from agent.errors import TwinBuildFailed, TwinNotStored
from agent.header.splits import shard_name
from agent.twin.layout import Shape, stored_as
from agent.twin.metadata import TOKENIZERS, Split, write_gguf
from agent.twin.recipe import Recipe
from agent.twin.shards import divide

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_TIMEOUT_SECONDS = 120
_NO_TOKENIZER = "unknown tokenizer"  # what llama.cpp says of one that it does not have
_QUANTISATION = ("*.scale", "*.input_scale")  # scales beside quantised weights; a twin has none
_NUMBERS = re.compile(r"(\d+)")


def build_twin(recipe: Recipe, folder: Path) -> Path:
    """The file of a twin, the first one of several, built if the folder does not hold it yet.

    The name holds the recipe's digest and that of the library and code that built it, so a file is never out of date; the
    same inputs give the same bytes. Several processes may ask for the same twin at once.

    Args:
        recipe: what to build.
        folder: the cache, created if it is missing.

    Returns:
        Path of the GGUF.

    Raises:
        TwinBuildFailed: llama.cpp refused the metadata or aborted; the message holds its words.
        TwinNotStored: the folder cannot be used, or the disk is full.
    """
    from filelock import FileLock

    prefix = folder / f"{recipe.architecture}-{_key(recipe)[:20]}"
    paths = _paths(prefix, len(recipe.shards))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if all(path.exists() for path in paths):
            return paths[0]
        with FileLock(f"{prefix}.gguf.lock"):
            if not all(path.exists() for path in paths):
                _write(recipe, paths)
    except OSError as error:
        raise TwinNotStored(
            f"{paths[0]} cannot be written ({error.strerror or error}): free the disk, or set SKIPPY_CACHE to another folder"
        ) from error
    return paths[0]


def _paths(prefix: Path, n_shards: int) -> list[Path]:
    if not n_shards:
        return [prefix.with_name(f"{prefix.name}.gguf")]
    return [prefix.with_name(shard_name(prefix.name, index, n_shards)) for index in range(n_shards)]


def _key(recipe: Recipe) -> str:
    return hashlib.sha256(f"{recipe.digest}:{_library_digest()}:{_code_digest()}".encode()).hexdigest()


@functools.cache
def _code_digest() -> str:
    from agent.twin import layout, metadata, shards, tensors, weights

    digest = hashlib.sha256()
    for source in (__file__, *(str(module.__file__) for module in (layout, metadata, shards, tensors, weights))):
        digest.update(Path(source).read_bytes())
    return digest.hexdigest()


@functools.cache
def _library_digest() -> str:
    """sha256 of the libllama under test: it alone decides which tensors an architecture has."""
    override = os.environ.get("LLAMA_CPP_LIB_PATH")
    spec = find_spec("llama_cpp")
    if override is None and (spec is None or spec.origin is None):
        raise TwinBuildFailed(
            "llama-cpp-python is not installed here; install the `engine` extra: pip install 'skippy-ci[engine]'"
        )
    folder = Path(override) if override is not None else Path(str(spec and spec.origin)).parent / "lib"
    for name in ("libllama.so", "libllama.dylib", "llama.dll", "libllama.dll"):
        if (folder / name).exists():
            return hashlib.sha256((folder / name).read_bytes()).hexdigest()
    raise TwinBuildFailed(f"no libllama in {folder}; set LLAMA_CPP_LIB_PATH to the folder of the libraries under test")


def _write(recipe: Recipe, paths: Sequence[Path]) -> None:
    with tempfile.TemporaryDirectory(dir=paths[0].parent, prefix=".twin-") as scratch:
        tokenizer = TOKENIZERS[0]
        try:
            shapes = _tensor_shapes(recipe, Path(scratch), tokenizer)
        except TwinBuildFailed as error:
            if _NO_TOKENIZER not in str(error):
                raise
            tokenizer = TOKENIZERS[1]
            shapes = _tensor_shapes(recipe, Path(scratch), tokenizer)
        parts = [Path(scratch) / path.name for path in paths]
        files = divide(sorted(shapes, key=_natural), recipe.shards)
        for number, (part, names) in enumerate(zip(parts, files, strict=True)):
            split = Split(number, len(parts), len(shapes)) if recipe.shards else None
            write_gguf(part, recipe, _tensors(recipe, shapes, names), tokenizer, split)
        for part, path in zip(parts, paths, strict=True):
            part.replace(path)


def _tensor_shapes(recipe: Recipe, scratch: Path, tokenizer: str) -> dict[str, Shape]:
    meta, out = scratch / "metadata.gguf", scratch / "tensors.json"
    write_gguf(meta, recipe, tokenizer=tokenizer)
    command = [sys.executable, "-m", "agent.twin.tensors", str(meta), str(out)]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
        "GGML_NO_BACKTRACE": "1",
    }
    try:
        child = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise TwinBuildFailed(f"{recipe.architecture}: llama.cpp did not answer within {_TIMEOUT_SECONDS} s") from error
    if child.returncode != 0 or not out.exists():
        end = f"signal {-child.returncode}" if child.returncode < 0 else f"exit code {child.returncode}"
        reason = " | ".join(line.strip() for line in child.stderr.splitlines() if line.strip()) or "no message"
        raise TwinBuildFailed(
            f"{recipe.architecture}: llama.cpp did not build the twin ({end}): {reason[-1500:]}. Compare the recipe's metadata "
            f"with what the architecture's loader in llama.cpp reads"
        )
    shapes = {str(name): tuple(shape) for name, shape in json.loads(out.read_text(encoding="utf-8"))}
    omit = (*_QUANTISATION, *recipe.omit)
    return stored_as(
        recipe.layout, {name: shape for name, shape in shapes.items() if not any(fnmatchcase(name, o) for o in omit)}
    )


def _tensors(
    recipe: Recipe, shapes: dict[str, Shape], names: Sequence[str]
) -> Iterator[tuple[str, NDArray[np.float32 | np.int32]]]:
    from agent.twin.weights import fill

    for name in names:
        yield name, fill(name, shapes[name], seed=recipe.seed, gains=recipe.gains)


def _natural(name: str) -> tuple[tuple[int, str], ...]:
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in _NUMBERS.split(name))
