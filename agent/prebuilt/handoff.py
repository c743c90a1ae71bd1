"""The product's own check of state handoff, on the whole model and on its first, a middle and its last stage."""

from __future__ import annotations

from agent.lanes.cuts import middle_cut, third_cuts
from agent.lanes.result import Findings, LaneResult
from agent.prebuilt.adapter import Options
from agent.prebuilt.ending import Trouble, conclude
from agent.prebuilt.judge_handoff import Handoff, judge_handoff
from agent.prebuilt.parity import wire_options
from agent.prebuilt.runs import run_correctness
from agent.prebuilt.target import Bench, Target

_COMMAND = "state-handoff"
_PREFIX_TOKENS = 24
_HIT_REPEATS = 3  # a drift shows only between hits
_LANES = 4


def check_handoff(bench: Bench, target: Target, lane: str) -> LaneResult:
    """Export, import elsewhere, continue; and compare the bytes with the arithmetic of the header."""
    findings, troubles = Findings(lane), list[Trouble]()
    asked = handoffs_of(target)
    for handoff in asked:
        run = run_correctness(
            bench,
            target,
            _COMMAND,
            _options(bench, target, handoff),
            ports=("--source-bind-addr", "--restore-bind-addr"),
            kept=(lane, handoff.name),
        )
        findings.measurements.setdefault("runs", {})[handoff.name] = run.describe()
        if run.report is not None:
            judge_handoff(run.report, handoff, target, findings)
        if run.trouble:
            troubles.append(Trouble(status=run.trouble.status, message=f"{handoff.name}: {run.trouble.message}"))
            break  # the next one would most likely hang or die in the same way
    return conclude(findings, troubles, f"{len(asked)} topologies, {_HIT_REPEATS} hits each: continued as before")


def handoffs_of(target: Target) -> tuple[Handoff, ...]:
    """One-stage, and where the model may be cut, split-first, split-middle and split-final."""
    ranges = {"one-stage": (0, target.layers)}
    if target.contract.legal_cuts:
        cut = middle_cut(target.contract)
        ranges["split-first"] = (0, cut)
        if thirds := third_cuts(target.contract):
            ranges["split-middle"] = thirds
        ranges["split-final"] = (cut, target.layers)
    return tuple(
        Handoff(
            name=name,
            start=start,
            end=end,
            payload=payload_of(target, start, end),
            prefix_tokens=_PREFIX_TOKENS,
            hit_repeats=_HIT_REPEATS,
        )
        for name, (start, end) in ranges.items()
    )


def payload_of(target: Target, start: int, end: int) -> str:
    """What the state of [start, end) must be handed over as; every layer is looked at.

    Keys and values of a range that has no attention cannot be exported, and recurrent state left behind is a wrong answer.
    """
    kinds = target.contract.state[start:end]
    attention, recurrent = any(kind.attention for kind in kinds), any(kind.recurrent for kind in kinds)
    if attention and recurrent:
        return "kv-recurrent"
    if recurrent:
        return "recurrent-only"
    return "resident-kv" if attention else "full-state"


def _options(bench: Bench, target: Target, handoff: Handoff) -> Options:
    return {
        "--activation-width": target.width,
        "--state-layer-start": handoff.start,
        "--state-layer-end": handoff.end,
        "--state-payload-kind": handoff.payload,
        "--prefix-token-count": handoff.prefix_tokens,
        "--cache-hit-repeats": handoff.hit_repeats,
        "--runtime-lane-count": _LANES,
        **({"--synthetic-input-activation": True} if handoff.start else {}),
        **wire_options(bench),
    }
