"""`cache-policy`: every stage that a cut can make selects the cache that its own layers allow."""

from __future__ import annotations

from dataclasses import dataclass

from agent.header.layers import layer_kinds_from_metadata, layer_kinds_from_tensors
from agent.lanes.policy import CachePolicy
from agent.lanes.result import Findings, LaneResult
from agent.lanes.subject import Subject

# the manifest's words for a policy -> what the layers must select
_MEANING = {
    "ResidentKv": "ResidentKv",
    "package-local ResidentKv": "ResidentKv",
    "KvRecurrent": "KvRecurrent",
}
_NEVER = "disabled"  # a row may always do without reuse


@dataclass(frozen=True, kw_only=True)
class Params:
    """This lane has none."""


def run(subject: Subject, _params: Params) -> LaneResult:
    """Compare the policy of the model with the row's, and that of every legal stage with the state its layers keep."""
    findings = Findings("cache-policy")
    contract, row = subject.contract, subject.expectations.family
    whole = subject.policy(contract.state)
    findings.expect(
        row.cache == _NEVER or whole == _MEANING.get(row.cache),
        f"the layers call for {whole}, the row {row.family} says {row.cache}",
    )
    if row.cache == _NEVER and whole != CachePolicy.DISABLED:
        findings.notes.append(f"the row {row.family} reuses nothing; its layers would allow {whole}")
    for source, kinds in (
        ("metadata", layer_kinds_from_metadata(subject.header)),
        ("tensor names", layer_kinds_from_tensors(subject.header)[: subject.n_layer]),
    ):
        selected = subject.policy(kinds or ())
        findings.expect(selected == whole, f"by its {source} the model would select {selected}, by its graph {whole}")

    edges = (0, *contract.legal_cuts, subject.n_layer)
    attention_first = 0
    for number, start in enumerate(edges):
        for end in edges[number + 1 :]:
            kinds = contract.state[start:end]
            selected = subject.policy(kinds)
            recurrent = contract.recurrent_in(start, end)
            attention_first += recurrent and not contract.recurrent_in(start, start + 1)
            findings.expect(
                (selected == CachePolicy.KV_RECURRENT) == recurrent,
                f"stage [{start}, {end}) {'holds' if recurrent else 'holds no'} recurrent state and selects {selected}",
            )
    findings.measurements |= {"policy": whole, "attention_first_stages": attention_first}
    return findings.result(f"{whole}; {findings.comparisons} stages and sources agree")
