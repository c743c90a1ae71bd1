"""`media-prefill`: text, a block of embeddings at the positions of its family, text again: split and whole say the same bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from agent.contracts import describe
from agent.engine.anatomy import Anatomy
from agent.engine.contract import Contract, column_label
from agent.engine.embeddings import Embeddings
from agent.engine.session import Logits, Tokens
from agent.engine.spare import session_of
from agent.engine.stage import Stage
from agent.lanes.agreement import Agreement
from agent.lanes.cuts import class_cuts, middle_cut
from agent.lanes.media import (
    Given,
    MediaTurn,
    decode,
    random_block,
    run_stages,
    span_of,
    sweep_cut,
    transcribe_media,
)
from agent.lanes.media_image import read_image
from agent.lanes.result import Findings, LaneResult
from agent.lanes.subject import Subject
from agent.lanes.workload import Workload

_CELLS = 256  # a context has a multiple of them


@dataclass(frozen=True, kw_only=True)
class Params:
    """`rows` x `columns` vectors between `prefix_tokens` and `suffix_tokens`; `cuts` is "all" or "classes"."""

    prefix_tokens: int
    rows: int
    columns: int
    suffix_tokens: int
    micro_batch: int
    decode_steps: int
    cuts: str


def run(subject: Subject, params: Params) -> LaneResult:
    """Run a block of random vectors, then an image through a projector where there is one."""
    findings, facts = Findings("media-prefill"), subject.model.facts
    before, after = Workload(
        segments=(params.prefix_tokens, params.suffix_tokens), decode_steps=0, micro_batch=params.micro_batch
    ).prompt(facts.n_vocab)
    block = random_block(facts, params.rows, params.columns, len(before))
    anatomy = _anatomy(subject, params, (before, block, after))
    _check_contract(subject, anatomy, findings)
    turns = _check_split("block", subject, anatomy, params, (before, block, after), findings)
    _check_block_is_read(anatomy, before, block, after, turns[2].logits, findings)
    _check_handover(subject, anatomy, before, block, after, turns[2].logits, findings)

    image = read_image(subject, params.rows, params.columns, findings)
    if image:
        turns = _check_split("image", subject, _anatomy(subject, params, image), params, image, findings)
        findings.measurements["image_generated"] = [int(turn.logits[-1].argmax()) for turn in turns[len(image) - 1 :]]
    findings.measurements |= {"position_axes": facts.position_axes, "n_embd_inp": facts.n_embd_inp}
    through = "and an image through a projector" if image else "no projector"
    return findings.result(
        f"{len(block)} vectors with {facts.position_axes} position(s) each, {through}: equal bit for bit"
    )


def _anatomy(subject: Subject, params: Params, segments: Sequence[Given]) -> Anatomy:
    """Contexts that hold the prompt; a block that attends to itself as a whole needs a micro-batch that holds it."""
    whole = [len(given) for given in segments if isinstance(given, Embeddings) and not given.causal]
    shape = subject.shape(max(params.micro_batch, *whole, 0))
    # each vector and token takes a cell; positions may go further than cells
    cells = max(sum(map(len, segments)), sum(map(span_of, segments))) + params.decode_steps
    return subject.anatomy_in(replace(shape, context=-(-cells // _CELLS) * _CELLS))


def _check_contract(subject: Subject, anatomy: Anatomy, findings: Findings) -> None:
    """Embeddings run another graph than tokens: it must be cut at the same places, and its deepstack columns must be known."""
    contract, facts = anatomy.of_embeddings.contract, subject.model.facts
    only_one = set(contract.legal_cuts) ^ set(subject.contract.legal_cuts)
    findings.expect(not only_one, f"cuts that are legal for either tokens or embeddings only: {sorted(only_one)}")
    layers, width = subject.header.metadata.get(subject.header.key("n_deepstack_layers")), facts.n_embd
    if isinstance(layers, int):
        findings.expect(
            facts.n_embd_inp == (layers + 1) * width,
            f"{layers} deepstack layers of {width} do not make a row of {facts.n_embd_inp}",
        )
        for cut in contract.legal_cuts:
            # layer i adds part i + 1 of a row to what it hands on
            expected = {column_label(((layer + 1) * width, (layer + 2) * width)) for layer in range(cut, layers)}
            found = {crossing.label for crossing in contract.cut(cut).frontier if crossing.of_input}
            findings.expect(
                found == expected,
                f"cut {cut}: of the embeddings {sorted(found) or 'nothing'} crosses, not {sorted(expected) or 'nothing'}",
            )
    elif facts.n_embd_inp != width:
        findings.notes.append(
            f"rows of {facts.n_embd_inp} at a width of {width}: what crosses is the graph's word alone"
        )
    findings.measurements["frontier"] = list(describe(contract).frontier)


def _check_split(
    what: str, subject: Subject, anatomy: Anatomy, params: Params, segments: Sequence[Given], findings: Findings
) -> tuple[MediaTurn, ...]:
    """The whole model twice, each cut of the set by itself, and live stages at the middle and at the two lowest cuts."""
    contract = _cuttable(subject, anatomy)
    cuts = contract.legal_cuts if params.cuts == "all" else class_cuts(contract)
    middle = middle_cut(contract)
    turns = _whole(anatomy, segments, params.decode_steps, cuts)
    again, repeated = _whole(anatomy, segments, params.decode_steps), Agreement()
    for turn, other in zip(turns, again, strict=True):
        repeated.compare(turn.logits, other.logits, turn.position)
    _count(f"{what}, the whole model again", repeated, findings)
    exact = 0
    for cut in cuts:
        agreement, carried = sweep_cut(subject, anatomy, turns, cut)
        exact += agreement.exact
        _count(f"{what}, cut {cut}", agreement, findings)
        findings.expect(carried, f"{what}, cut {cut}: the wire brought nothing that the stage did not have already")
    # at the lowest cuts a middle stage must pass on what layers above it read of the embeddings
    for chain in dict.fromkeys(((middle,), contract.legal_cuts[:2])):
        agreement, carried = run_stages(subject, anatomy, turns, chain)
        where = ", ".join(map(str, chain))
        _count(f"{what}, stages at {where}", agreement, findings)
        findings.expect(
            carried, f"{what}, stages at {where}: a wire brought nothing that the stage did not have already"
        )
    findings.measurements |= {f"{what}_cuts": list(cuts), f"{what}_exact": exact}
    return turns


def _cuttable(subject: Subject, anatomy: Anatomy) -> Contract:
    """The contract of the graph that is given embeddings; a cut that tokens forbid is forbidden."""
    contract, tokens = anatomy.of_embeddings.contract, subject.contract
    return replace(
        contract,
        cuts=tuple(
            replace(cut, forbidden_by=cut.forbidden_by or tokens.cut(cut.layer).forbidden_by) for cut in contract.cuts
        ),
    )


def _whole(
    anatomy: Anatomy, segments: Sequence[Given], decode_steps: int, cuts: Sequence[int] = ()
) -> tuple[MediaTurn, ...]:
    """What the whole model says; no fault touches it."""
    with _open_whole(anatomy) as whole:
        return transcribe_media(whole, segments, decode_steps, cuts)


def _open_whole(anatomy: Anatomy) -> Stage:
    return Stage(anatomy, session_of(anatomy.model, anatomy.shape), 0, anatomy.model.facts.n_layer)


def _count(what: str, agreement: Agreement, findings: Findings) -> None:
    findings.comparisons += agreement.positions
    if not agreement.exact:
        findings.problems.append(f"{what}: {agreement.first or 'nothing was compared'}")


def _check_block_is_read(
    anatomy: Anatomy, before: Tokens, block: Embeddings, after: Tokens, expected: Logits, findings: Findings
) -> None:
    """Where the block changes nothing that follows, an equal split proves nothing about it."""
    other = replace(block, vectors=np.ascontiguousarray(block.vectors[::-1]))
    with _open_whole(anatomy) as whole:
        decode(whole, before, 0)
        decode(whole, other, block.position)
        logits, _ = decode(whole, after, block.position + block.span)
    findings.expect(not np.array_equal(logits, expected), "the vectors of the block change nothing that follows them")


def _check_handover(
    subject: Subject,
    anatomy: Anatomy,
    before: Tokens,
    block: Embeddings,
    after: Tokens,
    expected: Logits,
    findings: Findings,
) -> None:
    """The state of a sequence with a block in it, in another session and sequence: it has more cells than positions."""
    agreement, position = Agreement(), block.position + block.span
    with subject.session(anatomy.shape) as here, subject.session(anatomy.shape) as there:
        here.decode(before, 0)
        here.decode_embeddings(block)
        there.import_state(here.export_state(0), 1)
        agreement.compare(expected, there.decode(after, position, 1), position)
    _count("after the block, in another session", agreement, findings)
    policy = subject.expectations.family.exact_state
    if policy not in ("accepted", "untested"):
        findings.notes.append(f"the row says {policy} of an exact state; here one with a block in it was handed over")
