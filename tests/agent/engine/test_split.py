"""A split gives the bits of the whole model, and shows it when it does not."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from agent.engine.anatomy import Counts, Port
from agent.engine.session import Session
from agent.engine.stage import BoundaryTap, Bytes, Stage
from agent.engine.transcript import Turn
from agent.errors import GraphChanged
from agent.lanes.agreement import Agreement
from agent.lanes.chained import brought_something, cross, run_chain
from agent.lanes.cuts import class_cuts, middle_cut, third_cuts
from agent.lanes.subject import Subject
from agent.lanes.workload import Workload
from agent.twin.catalog import RECIPES
from tests.agent.conftest import SMALL, Subjects

# a prefill of two micro-batches of other sizes, then decodes of one token
WORKLOAD = Workload(segments=(20,), decode_steps=3, micro_batch=16)


@pytest.mark.parametrize("family", [*SMALL, "qwen3vlmoe"])
def test_every_legal_cut_gives_the_bits_of_the_whole_model(subjects: Subjects, family: str) -> None:
    """The upper stage of each cut, fed with wrong tokens and the frames of the reference, has all its logits."""
    subject = subjects(family)
    cuts = subject.contract.legal_cuts
    assert cuts == tuple(range(1, subject.n_layer))
    for cut in cuts:
        agreement, carried = cross(subject, WORKLOAD, cut)
        assert agreement.positions == 23
        assert agreement.exact, f"cut {cut}: {agreement.first}"
        assert carried


@pytest.mark.parametrize("family", SMALL)
def test_three_live_stages_give_the_bits_of_the_whole_model(subjects: Subjects, family: str) -> None:
    """Each stage is fed with what the one before it computed, at every step."""
    subject = subjects(family)
    cuts = third_cuts(subject.contract)
    assert cuts is not None
    agreement, carried = run_chain(subject, WORKLOAD, cuts)
    assert agreement.positions == 23
    assert agreement.exact, agreement.first
    assert carried


def test_as_many_stages_as_layers_give_the_bits_of_the_whole_model(subjects: Subjects) -> None:
    """A chain cut everywhere is still the model, the tensor that only passes through included."""
    subject = subjects("rwkv7")
    agreement, carried = run_chain(subject, WORKLOAD, subject.contract.legal_cuts)
    assert agreement.exact, agreement.first
    assert carried


def feed(subject: Subject, stage: Stage, cut: int, dropped: Port | None = None) -> Agreement:
    """Feed a stage from the reference, without the boundary tensor that goes by the name of `dropped`."""
    agreement = Agreement()
    writes = stage.writes

    def fewer(counts: Counts, arriving: tuple[Bytes, ...] | None) -> dict[Port, Bytes]:
        kept = writes(counts, arriving)
        return {port: data for port, data in kept.items() if dropped is None or port.name != dropped.name}

    stage.writes = fewer  # type: ignore[method-assign]
    for turn in subject.reference(WORKLOAD).turns:
        logits, _ = stage.decode(turn.tokens, turn.position, 0, turn.frames[cut])
        agreement.compare(turn.logits, logits, turn.position)
    return agreement


@pytest.mark.parametrize("family", [*SMALL, "qwen3vlmoe"])
def test_a_boundary_tensor_that_does_not_cross_changes_the_logits(subjects: Subjects, family: str) -> None:
    """No tensor of a frontier is there for nothing: without any one of them the upper stage says something else."""
    subject = subjects(family)
    anatomy = subject.anatomy(16)
    cut = middle_cut(subject.contract)
    for port in anatomy.ports(cut, 1):
        with subject.stage(anatomy, cut, subject.n_layer) as stage:
            agreement = feed(subject, stage, cut, dropped=port)
        assert not agreement.exact, f"{port.name} crosses cut {cut} and makes no difference"
    with subject.stage(anatomy, cut, subject.n_layer) as stage:
        assert feed(subject, stage, cut).exact


# with token ids the columns that its upper layers read of the padded embeddings are zeros, whatever the ids are
ZEROS = {("qwen3vl", "pad@input"), ("qwen3vlmoe", "pad@input")}


@pytest.mark.slow
@pytest.mark.parametrize("architecture", RECIPES)
def test_no_tensor_of_any_frontier_is_there_for_nothing(subjects: Subjects, architecture: str) -> None:
    """Over all architectures: every tensor, at every legal cut that more than one crosses, and at the middle one."""
    subject = subjects(architecture)
    anatomy, contract = subject.anatomy(16), subject.contract
    middle = middle_cut(contract)
    idle = []
    for cut in contract.legal_cuts:
        frontier = contract.cut(cut).frontier
        if len(frontier) == 1 and cut != middle:
            continue
        for port, crossing in zip(anatomy.ports(cut, 1), frontier, strict=True):
            with subject.stage(anatomy, cut, subject.n_layer) as stage:
                exact = feed(subject, stage, cut, dropped=port).exact
            if exact and (architecture, crossing.label) not in ZEROS:
                idle.append((cut, crossing.label))
    assert idle == []


@pytest.mark.parametrize("family", ["kimi-k3", "step35"])
def test_what_the_lower_layers_read_too_is_written_when_they_are_done(subjects: Subjects, family: str) -> None:
    """Embeddings of kimi-k3, the input of step35's experts: written at once, they would give the lower layers the truth."""
    subject = subjects(family)
    anatomy = subject.anatomy(16)
    early, last = anatomy.ports(4, 1)
    assert early.ordinal < early.moment
    assert last.moment == last.ordinal
    turn = first(subject)
    with subject.stage(anatomy, 4, subject.n_layer) as stage:
        _, frames = stage.decode(turn.tokens, 0, 0, turn.frames[4], leaving=(4,))
        assert stage.unchanged == 0
    for given, left in zip(turn.frames[4], frames[4], strict=True):
        assert given.tobytes() == left.tobytes(), "what passes through leaves as it came"


@pytest.mark.parametrize("family", SMALL)
def test_a_flipped_bit_on_the_wire_changes_the_logits(subjects: Subjects, family: str) -> None:
    """One high bit of one value of one frame is seen."""
    subject = subjects(family)
    anatomy, cut = subject.anatomy(16), middle_cut(subject.contract)
    turn = subject.reference(WORKLOAD).turns[0]
    damaged = turn.frames[cut][0].copy()
    damaged[3] ^= 0x40
    with subject.stage(anatomy, cut, subject.n_layer) as stage:
        logits, _ = stage.decode(turn.tokens, 0, 0, (damaged, *turn.frames[cut][1:]))
    assert logits.tobytes() != turn.logits.tobytes()


def first(subject: Subject) -> Turn:
    """The prefill of the reference."""
    return subject.reference(WORKLOAD).turns[0]


def test_a_stage_without_a_frame_refuses(subjects: Subjects) -> None:
    """The upper stage never runs on nothing."""
    subject = subjects("qwen3-dense")
    with (
        subject.stage(subject.anatomy(16), 4, subject.n_layer) as stage,
        pytest.raises(GraphChanged, match=r"stage \[4, 8\) was given no frame"),
    ):
        stage.decode(first(subject).tokens, 0, 0)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_frame_with_too_few_or_too_many_tensors_is_refused(subjects: Subjects, count: int) -> None:
    """Two micro-batches need two tensors at this cut."""
    subject = subjects("qwen3-dense")
    turn = first(subject)
    frame = (turn.frames[4] * 2)[:count]
    with subject.stage(subject.anatomy(16), 4, subject.n_layer) as stage, pytest.raises(ValueError, match="zip"):
        stage.decode(turn.tokens, 0, 0, frame)


def test_a_frame_of_another_size_is_refused(subjects: Subjects) -> None:
    """Too few bytes are never written as if they were enough."""
    subject = subjects("qwen3-dense")
    turn = first(subject)
    short = tuple(data[:-4] for data in turn.frames[4])
    with subject.stage(subject.anatomy(16), 4, subject.n_layer) as stage, pytest.raises(GraphChanged, match="arrived"):
        stage.decode(turn.tokens, 0, 0, short)


@pytest.mark.parametrize(
    "change", [{"name": "l_out-9"}, {"n_bytes": 4}, {"name": "l_out-9", "n_bytes": 4}], ids=["name", "size", "both"]
)
@pytest.mark.parametrize("way", ["read", "write"])
def test_a_node_that_is_not_the_traced_one_is_refused(subjects: Subjects, change: dict[str, object], way: str) -> None:
    """Name and size of a port are checked when its node is met, before a byte is read or written."""
    subject = subjects("qwen3-dense")
    anatomy, turn = subject.anatomy(16), first(subject)
    ports = anatomy.ports(4, 20)
    wrong = dataclasses.replace(ports[0], **change)  # type: ignore[arg-type]
    write = {wrong: turn.frames[4][0]} if way == "write" else {}
    tap = BoundaryTap([wrong] if way == "read" else [], write)
    with subject.session(anatomy.shape) as session, pytest.raises(GraphChanged, match=f"the trace had {wrong.name}"):
        session.decode(turn.tokens, 0, 0, tap)


def test_a_decode_of_another_length_is_refused(subjects: Subjects) -> None:
    """A tap made for twenty tokens notices that sixteen were decoded."""
    subject = subjects("qwen3-dense")
    anatomy = subject.anatomy(16)
    tap = BoundaryTap(anatomy.ports(4, 20), {})
    with subject.session(anatomy.shape) as session:
        session.decode(np.arange(1, 17, dtype=np.int32), 0, 0, tap)
        run, traced = session.nodes_run, anatomy.step(20).n_nodes
    with pytest.raises(GraphChanged, match=f"the decode ran {run} nodes, the trace {traced}"):
        tap.finish(run, traced)


def test_a_port_that_was_not_met_is_noticed(subjects: Subjects) -> None:
    """A boundary tensor beyond the graph's end was neither read nor written, and the tap says so."""
    subject = subjects("qwen3-dense")
    anatomy = subject.anatomy(16)
    beyond = dataclasses.replace(anatomy.ports(4, 16)[0], ordinal=10**6)
    tap = BoundaryTap([beyond], {})
    with subject.session(anatomy.shape) as session:
        session.decode(np.arange(1, 17, dtype=np.int32), 0, 0, tap)
    with pytest.raises(GraphChanged, match="0 of 1 read"):
        tap.finish(anatomy.step(16).n_nodes, anatomy.step(16).n_nodes)


def test_a_frame_that_brings_nothing_new_is_counted(subjects: Subjects) -> None:
    """Where the stage had all the bytes already, written and unchanged are equal and nothing counts as brought."""
    subject = subjects("qwen3-dense")
    anatomy, turn = subject.anatomy(16), first(subject)
    frame = dict(zip(anatomy.ports(4, 20), turn.frames[4], strict=True))
    tap = BoundaryTap([], frame)
    with subject.session(anatomy.shape) as session:
        logits = session.decode(turn.tokens, 0, 0, tap)
        tap.finish(session.nodes_run, anatomy.step(20).n_nodes)
    assert (tap.written, tap.unchanged) == (2, 2)
    assert logits.tobytes() == turn.logits.tobytes()

    with subject.stage(anatomy, 4, subject.n_layer) as stage:
        stage.decode(turn.tokens, 0, 0, turn.frames[4])
        assert (stage.written, stage.unchanged) == (2, 0)
        assert brought_something(stage)
        stage.unchanged = stage.written
        assert not brought_something(stage)


@pytest.mark.parametrize("family", SMALL)
def test_a_tapped_run_equals_an_untapped_one(subjects: Subjects, family: str) -> None:
    """Reading every boundary tensor of every cut changes no bit of the reference."""
    subject = subjects(family)
    with Session(subject.model, subject.shape(16)) as session:
        for turn in subject.reference(WORKLOAD).turns:
            assert set(turn.frames) == set(subject.contract.legal_cuts)
            assert session.decode(turn.tokens, turn.position).tobytes() == turn.logits.tobytes()


def test_the_reference_is_greedy_and_of_the_asked_length(subjects: Subjects) -> None:
    """One turn for the prefill and one for each step, each step decoding the best token of the one before."""
    transcript = subjects("lfm2").reference(WORKLOAD)
    assert [len(turn.tokens) for turn in transcript.turns] == [20, 1, 1, 1]
    assert [turn.position for turn in transcript.turns] == [0, 20, 21, 22]
    assert [int(turn.tokens[0]) for turn in transcript.turns[1:]] == list(transcript.generated[:-1])
    assert all(np.isfinite(turn.logits).all() for turn in transcript.turns)


def test_a_prompt_of_segments_is_decoded_segment_by_segment(subjects: Subjects) -> None:
    """Each segment is one decode, and positions go on."""
    workload = Workload(segments=(5, 7), decode_steps=1, micro_batch=16)
    transcript = subjects("qwen3-dense").reference(workload)
    assert [(len(turn.tokens), turn.position) for turn in transcript.turns] == [(5, 0), (7, 5), (1, 12)]
    assert transcript.prefills == 2
    assert len(transcript.generated) == 2


@pytest.mark.parametrize("family", ["gemma3n", "gemma4"])
def test_layers_that_share_caches_cannot_be_parted(subjects: Subjects, family: str) -> None:
    """KV sharing of real architectures forbids cuts, with the caches named; the legal ones are exact all the same."""
    subject = subjects(family)
    forbidden = [cut for cut in subject.contract.cuts if cut.forbidden_by]
    assert forbidden
    assert all(name.startswith("cache_") for cut in forbidden for name in cut.forbidden_by)
    for cut in (subject.contract.legal_cuts[0], subject.contract.legal_cuts[-1]):
        agreement, carried = cross(subject, WORKLOAD, cut)
        assert agreement.exact, f"cut {cut}: {agreement.first}"
        assert carried


@pytest.mark.slow
@pytest.mark.parametrize("architecture", RECIPES)
def test_every_architecture_is_exact_at_every_class_of_cut(subjects: Subjects, architecture: str) -> None:
    """Every architecture that has a twin gives the bits of the whole model at its classes of cuts."""
    subject = subjects(architecture)
    cuts = class_cuts(subject.contract)
    assert cuts
    for cut in cuts:
        agreement, carried = cross(subject, WORKLOAD, cut)
        assert agreement.exact, f"cut {cut}: {agreement.first}"
        assert carried
