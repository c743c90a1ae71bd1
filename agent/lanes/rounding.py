"""When two runs that need not be equal bit for bit still say the same: their difference is what rounding explains."""

from __future__ import annotations

import numpy as np

from agent.lanes.agreement import Agreement
from agent.lanes.result import Findings
from agent.lanes.subject import Subject

_TIE = 2  # two logits may each be wrong by the bound


def judge_rounding(subject: Subject, what: str, agreement: Agreement, max_error: float, findings: Findings) -> float:
    """Count and judge a comparison of runs in other shapes; returns the normalised error that was judged.

    Where the model selects (experts, an indexer's top k) or its weights are quantised, rounding may tip a selection or a
    quantisation step and move one position far, with nothing wrong; a wrong kernel moves most of them. So there the median
    position is held to the bound, else the worst, and each token that changes must have been a near tie.
    """
    findings.comparisons += agreement.positions
    if not agreement.finite or not agreement.position_errors:
        findings.problems.append(f"{what}: {agreement.first or 'nothing was compared'}")
        return 0.0
    robust = subject.selects or not subject.expectations.random_weights
    errors = agreement.position_errors
    judged = float(np.median(errors) if robust else max(errors))
    findings.expect(
        judged <= max_error,
        f"{what}: {'median' if robust else 'largest'} normalised error of a position {judged:.3g} is above {max_error}",
    )
    if agreement.largest_flip > _TIE * max_error and not robust:
        findings.problems.append(
            f"{what}: a token lost that led by {agreement.largest_flip:.3g} standard deviations, more than rounding explains; "
            f"{agreement.first}"
        )
    elif agreement.token_flips:
        findings.notes.append(f"{what}: {agreement.token_flips} tokens differ within rounding")
    return judged
