"""The stage configurations that `skippy-server` reads."""

from __future__ import annotations

import itertools
import json
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent.prebuilt.ports import address
from agent.prebuilt.target import Target

LANES = 4
CONTEXT_A_LANE = 512
# the payload is left to the server: that it chooses the right one is part of what is tested
_CACHE_ON = {
    "mode": "lookup-record",
    "payload": "auto",
    "max_entries": 16,
    "max_bytes": 0,
    "min_tokens": 8,
    "shared_prefix_stride_tokens": 16,
    "shared_prefix_record_limit": 2,
}
_CACHE_OFF = {**_CACHE_ON, "mode": "disabled"}


def new_model_id() -> str:
    """An id that no other server serves, so that an answer from another one is noticed."""
    return f"skippy-ci/model:{secrets.token_hex(6)}"


def write_stage_configs(
    target: Target, cuts: Sequence[int], ports: Sequence[int], model_id: str, folder: Path, *, cache: bool
) -> tuple[Path, ...]:
    """Write a configuration for each stage of a model that is cut at `cuts`; returns their paths, the first stage's first."""
    edges = [0, *cuts, target.layers]
    paths = []
    for index, (start, end) in enumerate(itertools.pairwise(edges)):
        config = _stage_config(target, index, start, end, ports, model_id, cache=cache)
        path = folder / f"stage-{index}.config.json"
        path.write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
        paths.append(path)
    return tuple(paths)


def _stage_config(
    target: Target, index: int, start: int, end: int, ports: Sequence[int], model_id: str, *, cache: bool
) -> dict[str, Any]:
    return {
        "run_id": "skippy-ci",
        "topology_id": f"skippy-ci-{len(ports)}",
        "model_id": model_id,
        "model_path": str(target.model),
        "source_model_sha256": target.sha256,
        "stage_id": _stage(index),
        "stage_index": index,
        "layer_start": start,
        "layer_end": end,
        "ctx_size": LANES * CONTEXT_A_LANE,
        "lane_count": LANES,
        "n_gpu_layers": target.gpu_layers,
        "cache_type_k": "f16",
        "cache_type_v": "f16",
        "flash_attn_type": "auto",
        "load_mode": "runtime-slice",
        "bind_addr": address(ports[index]),
        "kv_cache": _CACHE_ON if cache else _CACHE_OFF,
        "upstream": _peer(index - 1, ports) if index else None,
        "downstream": _peer(index + 1, ports) if index + 1 < len(ports) else None,
    }


def _peer(index: int, ports: Sequence[int]) -> dict[str, Any]:
    return {"stage_id": _stage(index), "stage_index": index, "endpoint": f"tcp://{address(ports[index])}"}


def _stage(index: int) -> str:
    return f"stage-{index}"
