"""`determinism`: repeats and thread counts change no bit; other batch shapes change no token beyond rounding.

Where a single token sees so many cells that llama.cpp divides them among its threads, other thread counts add in another order:
there the greedy steps are judged as other shapes are, and the prefill stays exact.

The whole model runs as in a server, with nobody looking at its nodes, so the first repeat also shows that the tap through
which the reference was recorded changed nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from agent.engine.session import Shape
from agent.lanes import single_step
from agent.lanes.agreement import Agreement
from agent.lanes.cuts import middle_cut
from agent.lanes.result import Findings, LaneResult
from agent.lanes.rounding import judge_rounding
from agent.lanes.subject import Subject
from agent.lanes.workload import Workload

_DIVIDED_CELLS = 512  # `use_split_kv_path` in ggml-cpu/ops.cpp
_CELL_STEP = 256  # a graph sees as many cells as are used, rounded up (`n_pad` in llama-kv-cache.cpp)


@dataclass(frozen=True, kw_only=True)
class Params(single_step.Params):
    """`repeats` in one shape, `threads` and `micro_batches` to vary, `max_error` for the normalised error across shapes."""

    repeats: int
    threads: tuple[int, ...]
    micro_batches: tuple[int, ...]
    max_error: float


def run(subject: Subject, params: Params) -> LaneResult:
    """Run the whole model and its second stage again and again."""
    findings = Findings("determinism")
    workload = params.workload
    shape = replace(subject.shape(workload.micro_batch), tapped=False)
    for repeat in range(1, params.repeats):
        _expect_exact(findings, f"repeat {repeat + 1}", _again(subject, workload, shape))
    if subject.model.device.is_cpu:
        _across_threads(subject, params, shape, findings)
    _second_stage(subject, workload, params.repeats, findings)
    worst = _across_shapes(subject, params, findings)
    findings.measurements |= {"repeats": params.repeats, "worst_error_across_shapes": worst}
    return findings.result(f"{params.repeats} repeats equal bit for bit; across shapes {worst:.1e}")


def _again(subject: Subject, workload: Workload, shape: Shape) -> Agreement:
    """Decode the reference's tokens in an empty session of `shape`."""
    agreement, steps = _in_two_parts(subject, workload, shape)
    agreement.add(steps)
    return agreement


def _in_two_parts(subject: Subject, workload: Workload, shape: Shape) -> tuple[Agreement, Agreement]:
    """The same, the prefill and the greedy steps apart."""
    prefill, steps = Agreement(), Agreement()
    reference = subject.reference(workload)
    with subject.session(shape) as session:
        for number, turn in enumerate(reference.turns):
            agreement = prefill if number < reference.prefills else steps
            agreement.compare(turn.logits, session.decode(turn.tokens, turn.position), turn.position)
    return prefill, steps


def _expect_exact(findings: Findings, what: str, agreement: Agreement) -> None:
    findings.comparisons += agreement.positions
    if not agreement.exact:
        findings.problems.append(f"{what}: {agreement.first}")


def _across_threads(subject: Subject, params: Params, shape: Shape, findings: Findings) -> None:
    divided = _divides_cells(subject, params.workload)
    for threads in sorted({*params.threads} - {shape.threads}):  # with these the repeats ran
        prefill, steps = _in_two_parts(subject, params.workload, replace(shape, threads=threads))
        if divided:
            judge_rounding(subject, f"{threads} threads", steps, params.max_error, findings)
        else:
            prefill.add(steps)
        _expect_exact(findings, f"{threads} threads", prefill)
    if divided:
        findings.notes.append(
            f"a single token sees {_DIVIDED_CELLS} cells or more, which llama.cpp's CPU attention divides among its threads: "
            "greedy steps with other thread counts are judged by rounding"
        )


def _divides_cells(subject: Subject, workload: Workload) -> bool:
    graph = subject.anatomy(workload.micro_batch).step(1).graphs[0]
    keys = [graph.tensors[tensor.inputs[1]] for tensor in graph.tensors if tensor.op == "FLASH_ATTN_EXT"]
    tokens = sum(workload.segments) + workload.decode_steps
    seen = tokens + -tokens % _CELL_STEP
    return any(max(key.shape[1], seen) >= _DIVIDED_CELLS for key in keys)


def _second_stage(subject: Subject, workload: Workload, repeats: int, findings: Findings) -> None:
    """The stage after a cut has a path of its own (embedding input), so it is repeated for itself."""
    cut, anatomy = middle_cut(subject.contract), subject.anatomy(workload.micro_batch)
    reference = subject.reference(workload)
    for repeat in range(repeats):
        agreement = Agreement()
        with subject.stage(anatomy, cut, subject.n_layer) as stage:
            for turn in reference.turns:
                logits, _ = stage.decode(turn.tokens, turn.position, 0, turn.frames[cut])
                agreement.compare(turn.logits, logits, turn.position)
        _expect_exact(findings, f"second stage from cut {cut}, repeat {repeat + 1}", agreement)


def _across_shapes(subject: Subject, params: Params, findings: Findings) -> float:
    """Other micro-batches run other kernels, so the last bits may differ; returns the worst judged error."""
    worst = 0.0
    for micro_batch in params.micro_batches:
        shape = replace(subject.shape(micro_batch), sequences=1, tapped=False)
        agreement = _again(subject, params.workload, shape)
        worst = max(worst, judge_rounding(subject, f"micro-batch {micro_batch}", agreement, params.max_error, findings))
    return worst
