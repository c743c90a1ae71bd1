"""What holds for every mixture of inputs: only a complete one is green, and the order never matters."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.gate.evidence import Evidence, FiledReceipt, RefusedFile
from agent.gate.reason import Cause, State
from agent.gate.verdict import judge
from agent.gate.verdict_file import verdict_to_json
from tests.agent.gate.kit import PLAN, RUN, complete, context, filed
from tests.agent.gate.test_verdict import FAULTS

WHOLE = complete()
GOOD = {receipt.leg: filed(receipt) for receipt in WHOLE}
WRONG = {(name, receipt.leg): filed(change(receipt)) for name, (change, _, _) in FAULTS.items() for receipt in WHOLE}
JOBS = ["success", "skipped", "cancelled", "failure", "", "neutral"]


@st.composite
def mixtures(draw: st.DrawFn) -> tuple[list[FiledReceipt], list[RefusedFile], dict[str, str] | None, bool]:
    """Per leg: good, missing, repeated, of an older attempt, or wrong in a known way. Jobs and foreign files on top."""
    entries: list[FiledReceipt] = []
    good = True
    for receipt in WHOLE:
        kind = draw(st.sampled_from(["good", "good", "good", "copy", "earlier", "missing", "repeated", *FAULTS]))
        entry = GOOD[receipt.leg]
        match kind:
            case "good":
                entries.append(entry)
            case "copy":
                entries += [entry, filed(receipt, f"copy/{receipt.leg}/receipt.json")]
            case "earlier":  # superseded by a good one of a higher attempt
                later = replace(receipt, run={**RUN, "attempt": "2"})
                broken = replace(receipt, lanes=receipt.lanes[:1])
                entries += [filed(later, f"2/{receipt.leg}/receipt.json"), filed(broken)]
            case "missing":
                good = False
            case "repeated":
                other = replace(receipt, log=draw(st.text(min_size=1, max_size=3)))
                entries += [entry, filed(other, f"other/{receipt.leg}/receipt.json")]
                good = False
            case "later-attempt":  # attempt 2 is the present one here
                entries.append(entry)
            case _:
                entries.append(WRONG[kind, receipt.leg])
                good = False
    refused = []
    if draw(st.integers(0, 9)) == 0:
        cause = draw(st.sampled_from([Cause.RECEIPT_EDITED, Cause.RECEIPT_INVALID, Cause.RECEIPT_UNREADABLE]))
        refused.append(RefusedFile(place="x/receipt.json", cause=cause, message="m"))
        good = False
    if draw(st.integers(0, 9)) == 0:
        entries.append(filed(replace(WHOLE[0], leg="stranger@cpu")))
        good = False
    jobs = draw(st.none() | st.dictionaries(st.sampled_from(["build", "certify", "plan"]), st.sampled_from(JOBS)))
    good = good and (jobs is None or (bool(jobs) and set(jobs.values()) == {"success"}))
    return entries, refused, jobs, good


@settings(max_examples=300, deadline=None)
@given(mixtures(), st.randoms(use_true_random=False))
def test_only_a_complete_mixture_is_green(
    mixture: tuple[list[FiledReceipt], list[RefusedFile], dict[str, str] | None, bool], random: object
) -> None:
    """Missing, skipped, cancelled, repeated, foreign, edited or wrong: never green. Complete: green. In any order."""
    entries, refused, jobs, good = mixture
    verdict = judge(PLAN, Evidence(receipts=tuple(entries), refused=tuple(refused)), context(jobs=jobs, attempt=2))
    assert (verdict.state is State.GREEN) == good
    assert bool(verdict.causes) == (not good)
    random.shuffle(entries)  # type: ignore[attr-defined]
    shuffled = judge(PLAN, Evidence(receipts=tuple(entries), refused=tuple(refused)), context(jobs=jobs, attempt=2))
    assert verdict_to_json(shuffled) == verdict_to_json(verdict)


@settings(max_examples=100, deadline=None)
@given(st.sets(st.sampled_from(range(len(WHOLE)))), st.integers(0, 4))
def test_repeats_never_make_up_for_a_missing_leg(kept: set[int], repeats: int) -> None:
    """However often the others reported: green exactly if every leg of the plan is there."""
    entries = tuple(
        filed(WHOLE[index], f"{copy}/{index}/receipt.json") for index in kept for copy in range(repeats + 1)
    )
    verdict = judge(PLAN, Evidence(receipts=entries), context())
    assert (verdict.state is State.GREEN) == (len(kept) == len(WHOLE))
    assert sum(leg.state is State.GREEN for leg in verdict.legs) == len(kept)


@settings(max_examples=100, deadline=None)
@given(mixtures(), st.sampled_from(["stranger@cpu", "qwen3-dense@metal", "x@cpu"]))
def test_a_foreign_receipt_never_helps(
    mixture: tuple[list[FiledReceipt], list[RefusedFile], dict[str, str] | None, bool], name: str
) -> None:
    """Adding a receipt of an unknown leg makes the verdict red and says so, whatever else there is."""
    entries, refused, jobs, _ = mixture
    foreign = filed(replace(WHOLE[0], leg=name))
    verdict = judge(PLAN, Evidence(receipts=(*entries, foreign), refused=tuple(refused)), context(jobs=jobs, attempt=2))
    assert verdict.state is State.RED
    assert Cause.FOREIGN_RECEIPT in verdict.causes
