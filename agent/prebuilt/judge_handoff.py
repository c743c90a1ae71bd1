"""What a report of `state-handoff` must say, and what its bytes must be by the arithmetic of the header."""

from __future__ import annotations

from dataclasses import dataclass

from agent.errors import HeaderError
from agent.header.state_size import kv_page_bytes, recurrent_bytes
from agent.lanes.result import Findings
from agent.prebuilt.judge import check_token, same
from agent.prebuilt.report import Report
from agent.prebuilt.target import Target


@dataclass(frozen=True, kw_only=True)
class Handoff:
    """A state handoff that was asked for: the layers [start, end), the kind of payload, and the least of tokens and hits."""

    name: str
    start: int
    end: int
    payload: str
    prefix_tokens: int
    hit_repeats: int


def judge_handoff(report: Report, asked: Handoff, target: Target, findings: Findings) -> None:
    """Judge a `state-handoff` report: what was restored continues as the original, and weighs what the header predicts."""
    name, known = asked.name, len(findings.problems)
    same(
        findings, f"{name}: the report's layers", (report["layer_start"], report["layer_end"]), (asked.start, asked.end)
    )
    same(findings, f"{name}: the report's payload", report["state_payload_kind"], asked.payload)
    if report["prompt_token_count"] < asked.prefix_tokens:
        findings.problems.append(
            f"{name}: {report['prompt_token_count']} tokens were restored, {asked.prefix_tokens} were asked for"
        )
    if report["cache_hit_repeats"] < asked.hit_repeats:
        findings.problems.append(
            f"{name}: {report['cache_hit_repeats']} hits were tried, {asked.hit_repeats} were asked for"
        )
    source, restored = report["source_predicted_token"], report["restored_predicted_token"]
    equal = findings.expect(source == restored, f"{name}: token {restored} after the restore, {source} before it")
    check_token(source, target, findings, name)
    same(findings, f"{name}: the report's predicted_token_matches", report["predicted_token_matches"], equal)
    for field, what in (
        ("cache_hit_matches", "a repeated hit answers otherwise"),
        ("restored_output_matches", "the restored stage gives other activations"),
        ("suffix_prefill_matches", "a suffix after the restore gives another token"),
        ("roundtrip_state_matches", "the restored state, exported again, has other bytes"),
    ):
        value = report.get(field)
        if value is None:
            findings.notes.append(f"{name}: {field} was not compared")
        else:
            findings.expect(value, f"{name}: {what} ({field} is false)")
    if not report["matches"] and len(findings.problems) == known:
        findings.problems.append(f"{name}: the report says that it does not match, and not why")
    _judge_bytes(report, asked, target, findings)


def _judge_bytes(report: Report, asked: Handoff, target: Target, findings: Findings) -> None:
    digest, name = report["payload_digest"], asked.name
    if not report["state_bytes"] or not digest["total_bytes"]:
        findings.problems.append(f"{name}: the state that was handed over is empty")
    findings.measurements.setdefault("bytes", {})[name] = {
        "state": report["state_bytes"], "kv": digest["kv_bytes"], "recurrent": digest["recurrent_bytes"]
    }  # fmt: skip
    if asked.payload == "full-state":
        return  # one blob: its parts are not told apart
    layers = range(asked.start, asked.end)
    try:
        recurrent, all_recurrent = recurrent_bytes(target.header, layers), recurrent_bytes(target.header)
        kv = kv_page_bytes(target.header, report["prompt_token_count"], layers)
    except HeaderError as error:
        findings.notes.append(f"{name}: no byte count is predicted: {error.detail}")
        return
    if not any(kind.recurrent for kind in target.contract.state[asked.start : asked.end]):
        recurrent = 0
    found = digest["recurrent_bytes"]
    if found == all_recurrent != recurrent:
        findings.notes.append(
            f"{name}: all {found} recurrent bytes of the model were handed over, not those of its layers"
        )
        findings.comparisons += 1
    else:
        findings.expect(found == recurrent, f"{name}: {found} recurrent bytes, the header predicts {recurrent}")
    if target.header.key("attention.indexer.head_count") in target.header.metadata:
        findings.expect(
            digest["kv_bytes"] >= kv, f"{name}: {digest['kv_bytes']} KV bytes, keys and values alone are {kv}"
        )
    else:
        findings.expect(digest["kv_bytes"] == kv, f"{name}: {digest['kv_bytes']} KV bytes, the header predicts {kv}")
