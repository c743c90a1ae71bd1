"""When two runs that need not be equal bit for bit still say the same: their difference is what rounding explains."""

from __future__ import annotations

import numpy as np

from agent.engine.spare import session_of
from agent.engine.stage import Bytes, Stage
from agent.lanes.agreement import Agreement
from agent.lanes.result import Findings
from agent.lanes.subject import DEFAULT_MICRO_BATCH, Subject
from agent.lanes.workload import Workload

_TIE = 2  # two logits may each be wrong by the bound
_NUDGE = np.float32(2.0**-20)  # some units in the last place of f32, as sums in another order differ
_SPREAD = 1.5  # two runs that rounding drove apart are as far from each other as chance has it
_NOTHING_ALIKE = 1.0  # logits that have nothing to do with each other differ by the root of two
_NUDGED = Workload(segments=(40,), decode_steps=8, micro_batch=DEFAULT_MICRO_BATCH)


def judge_rounding(subject: Subject, what: str, agreement: Agreement, max_error: float, findings: Findings) -> float:
    """Count and judge a comparison of runs in other shapes; returns the normalised error that was judged.

    Where the model selects (experts, an indexer's top k) or its weights are quantised, rounding may tip a selection or a
    quantisation step and move one position far, with nothing wrong; a wrong kernel moves most of them. So there the median
    position is held to the bound, else the worst, and each token that changes must have been a near tie. In a deep model
    one tipped selection tips others, until most positions have moved: where the bound is passed, it is held against what
    rounding alone does to this model.
    """
    findings.comparisons += agreement.positions
    if not agreement.finite or not agreement.position_errors:
        findings.problems.append(f"{what}: {agreement.first or 'nothing was compared'}")
        return 0.0
    robust = subject.selects or not subject.expectations.random_weights
    errors = agreement.position_errors
    judged = float(np.median(errors) if robust else max(errors))
    bound = max_error
    if robust and judged > max_error:
        own = sensitivity_of(subject)
        bound = max(max_error, min(_SPREAD * own, _NOTHING_ALIKE))
        if judged <= bound:
            findings.notes.append(
                f"{what}: normalised error {judged:.3g}; other last bits at the first cut alone move this model by {own:.3g}, "
                f"so nothing below {bound:.3g} tells a fault"
            )
    findings.expect(
        judged <= bound,
        f"{what}: {'median' if robust else 'largest'} normalised error of a position {judged:.3g} is above {bound:.3g}",
    )
    if agreement.largest_flip > _TIE * max_error and not robust:
        findings.problems.append(
            f"{what}: a token lost that led by {agreement.largest_flip:.3g} standard deviations, more than rounding explains; "
            f"{agreement.first}"
        )
    elif agreement.token_flips:
        findings.notes.append(f"{what}: {agreement.token_flips} tokens differ within rounding")
    return judged


def sensitivity_of(subject: Subject) -> float:
    """How far rounding moves the model: the median normalised error when all that crosses its first cut has other last bits.

    The same shape, the same kernels, no fault: only some units in the last place are other ones. Measured once.
    """
    if subject.sensitivity is None:
        subject.sensitivity = _measure(subject)
    return subject.sensitivity


def _measure(subject: Subject) -> float:
    if not subject.contract.legal_cuts:
        return 0.0
    cut, anatomy = subject.contract.legal_cuts[0], subject.anatomy(_NUDGED.micro_batch)
    agreement, random = Agreement(), np.random.default_rng(0)
    with Stage(anatomy, session_of(subject.model, anatomy.shape), cut, subject.n_layer) as stage:
        for turn in subject.reference(_NUDGED).turns:
            ports = anatomy.ports(cut, len(turn.tokens))
            frame = tuple(
                _nudged(data, random) if port.dtype == "f32" else data
                for port, data in zip(ports, turn.frames[cut], strict=True)
            )
            logits, _ = stage.decode(turn.tokens, turn.position, 0, frame)
            agreement.compare(turn.logits, logits, turn.position)
    return float(np.median(agreement.position_errors)) if agreement.finite else 0.0


def _nudged(data: Bytes, random: np.random.Generator) -> Bytes:
    values = data.view(np.float32)
    signs = random.choice(np.array([-1, 1], dtype=np.float32), values.size)
    return np.asarray(values * (1 + _NUDGE * signs), dtype=np.float32).view(np.uint8)
