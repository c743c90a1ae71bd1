"""A small plan and the receipts that it wants."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent.gate.evidence import Evidence, FiledReceipt, RunContext
from agent.gate.minimums import least_comparisons
from agent.gate.verdict import Verdict, judge
from agent.lanes.result import LaneResult, Status
from agent.receipt.receipt import Receipt, TestedFile, TestedSubject, write_receipt
from matrixgen.battery import LaneSpec
from matrixgen.canonical import sha256_hex
from matrixgen.family import Family
from matrixgen.leg import Build, Leg, Plan, Skipped
from matrixgen.minimums import least_comparisons as minimum
from matrixgen.pin import Binding, Patch, Pin

BASE = "b" * 40
RUN = {"repository": "mesh/llm", "sha": BASE, "run_id": "700", "attempt": "1"}
NOW = "2026-11-29T12:00:00+00:00"
DEVICES = {"cpu": "CPU", "cuda": "CUDA0"}


_SIZES = {"prompt_tokens": 40, "micro_batch": 16, "decode_steps": 8}
_HIT = {"prefix_tokens": 24, "suffix_tokens": 9, "micro_batch": 16, "decode_steps": 8, "hit_repeats": 3}
_SHORT: Mapping[str, Mapping[str, Any]] = {
    "inspect": {},
    "determinism": {**_SIZES, "repeats": 5, "threads": [1, 2], "micro_batches": [40, 7], "max_error": 0.05},
}
_LONG: Mapping[str, Mapping[str, Any]] = {
    "inspect": {},
    "boundary-sweep": {**_SIZES, "cuts": "all"},
    "cache-recurrent": _HIT,
    "single-step": _SIZES,
}


def family(name: str, arch: str, shape: str) -> Family:
    """A manifest row with one pinned file."""
    file = {"size": 1000 + len(name), "sha256": sha256_hex(name)}
    artifact = {"repo": f"o/{name}", "revision": "a" * 40, "selector": "Q8_0", "files": {f"q/{name}.gguf": file}}
    row = {
        "family": name,
        "tier": 1,
        "arch": arch,
        "shape": shape,
        "priority": "p0",
        "status": "certified",
        "artifact": artifact,
        "projector": None,
        "package": None,
        "wire": {"f32": "required", "f16": "validated", "q8": "rejected"},
        "cache": "ResidentKv" if shape == "dense" else "KvRecurrent",
        "exact_state": "accepted",
        "llama_models": [arch],
        "reason": "",
        "notes": "",
    }
    return Family.from_row(row)


def leg(row: Family, backend: str, subject: str, lanes: Mapping[str, Mapping[str, Any]]) -> Leg:
    """A leg of the plan."""
    files = row.weight_files if subject == "weights" else ()
    return Leg(
        id=f"{row.family}@{backend}",
        family=row,
        backend=backend,
        subject=subject,
        lanes=tuple(LaneSpec(name, params, minimum(name, params)) for name, params in lanes.items()),
        runner=f"lab-{backend}",
        runs_on=("self-hosted", backend),
        timeout_minutes=20,
        build_key=f"build-{backend}~",
        model_key=f"models-{row.family}~" if files else None,
        files=files,
    )


def make_plan(commit: str = "1" * 40) -> Plan:
    """Two families on weights, each on cpu and cuda, one twin with a longer battery, and one family that is skipped."""
    qwen, mamba, twin = (
        family("qwen3-dense", "qwen3", "dense"),
        family("mamba", "mamba", "recurrent"),
        family("mamba2", "mamba2", "recurrent"),
    )
    legs = (
        *(leg(row, backend, "weights", _SHORT) for row in (mamba, qwen) for backend in ("cpu", "cuda")),
        leg(twin, "cpu", "twin", _LONG),
    )
    return Plan(
        schema_version=1,
        event="llama-bump",
        pin=Pin(
            commit=commit,
            version="b10516",
            patches=(Patch("0006-state.patch", sha256_hex("a patch\n")),),
            binding=Binding("llama-cpp-python", "0.3.36", "v0.5.0", None),
            toolchain_epoch="1",
            cache_version="v1",
        ),
        legs=legs,
        builds=tuple(
            Build(
                key=f"build-{backend}~",
                artifact=f"build-{backend}",
                backend=backend,
                os="linux",
                arch="x64",
                runner=f"lab-{backend}",
                runs_on=("self-hosted",),
                timeout_minutes=60,
            )
            for backend in ("cpu", "cuda")
        ),
        skipped=(Skipped("arcee", "package row: its weights are never fetched whole"),),
    )


PLAN = make_plan()


def context(**changes: Any) -> RunContext:
    """Attempt 1 of run 700."""
    return RunContext(
        **{
            "repository": "mesh/llm",
            "run_id": "700",
            "attempt": 1,
            "base_commit": BASE,
            "certified_at": NOW,
            **changes,
        }
    )


def receipt_of(leg: Leg, plan: Plan = PLAN, **changes: Any) -> Receipt:
    """What an honest runner writes when everything passes."""
    twin = leg.subject == "twin"
    files = tuple(
        TestedFile(name=file.path.rpartition("/")[2], size=file.size or 0, sha256=file.sha256 or "")
        for file in leg.files
    ) or (TestedFile(name="twin.gguf", size=9, sha256="7" * 64),)
    name = DEVICES[leg.backend]
    receipt = Receipt(
        leg=leg.id,
        plan=plan.digest,
        event=plan.event,
        family=leg.family.to_row(),
        pin=plan.pin.to_json(),
        build_key=leg.build_key,
        subject=TestedSubject(
            kind=leg.subject,
            architecture=leg.family.arch or "",
            files=files,
            recipe="8" * 64 if twin else None,
            proves="p",
            does_not_prove="n",
        ),
        engine={"version": "0.5.0", "libraries": {"libllama.so": sha256_hex(leg.build_key)}},
        device={"name": name, "description": "a device", "backend": leg.backend},
        nodes_by_device={"CPU": 9, name: 300},
        agent="0.1.0",
        runner={"os": "linux"},
        run=RUN,
        started_at="2026-11-29T10:00:00+00:00",
        finished_at="2026-11-29T10:05:00+00:00",
        lanes=tuple(
            LaneResult(
                lane=lane.name,
                status=Status.PASS,
                comparisons=least_comparisons(lane),
                summary="good",
                seconds=1.5,
                measurements={"legal_cuts": [1]} if lane.name == "inspect" else {},
            )
            for lane in leg.lanes
        ),
        log="",
    )
    return replace(receipt, **changes)


def filed(receipt: Receipt, place: str | None = None, **changes: Any) -> FiledReceipt:
    """The receipt as if it had been read from a file."""
    data = receipt.to_json()
    digest = data["digest"]
    return FiledReceipt(
        **{
            "place": place or f"{receipt.leg}/receipt.json",
            "sha256": sha256_hex(json.dumps(data)),
            "digest": digest,
            "receipt": receipt,
            **changes,
        }
    )


def complete(plan: Plan = PLAN) -> tuple[Receipt, ...]:
    """One honest receipt a leg."""
    return tuple(receipt_of(leg, plan) for leg in plan.legs)


def verdict_of(receipts: Iterable[Receipt | FiledReceipt], plan: Plan = PLAN, **changes: Any) -> Verdict:
    """Judge receipts in the usual run."""
    entries = tuple(entry if isinstance(entry, FiledReceipt) else filed(entry) for entry in receipts)
    return judge(plan, Evidence(receipts=entries), context(**changes))


def with_lane(receipt: Receipt, index: int, **changes: Any) -> Receipt:
    """The receipt with one lane changed."""
    lanes = list(receipt.lanes)
    lanes[index] = replace(lanes[index], **changes)
    return replace(receipt, lanes=tuple(lanes))


def with_subject(receipt: Receipt, **changes: Any) -> Receipt:
    """The receipt with its subject changed."""
    return replace(receipt, subject=replace(receipt.subject, **changes))


def write_all(receipts: Iterable[Receipt], folder: Path) -> None:
    """Write receipts as the agent does, one folder a leg."""
    for receipt in receipts:
        write_receipt(receipt, folder)
