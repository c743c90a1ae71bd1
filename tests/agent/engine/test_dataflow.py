"""Ownership, state and cuts, on graphs made by hand."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.engine.contract import Contract, derive_contract
from agent.engine.dataflow import BEFORE_LAYERS, Boundary, Dataflow, analyse
from agent.engine.graph import Graph, StepGraphs, Tensor
from agent.layer_kind import LayerKind

WIDTH, TOKENS = 8, 3


@dataclass
class Drawing:
    """A graph that grows line by line; every method returns the index of the new tensor."""

    tensors: list[Tensor] = field(default_factory=list)

    def leaf(self, name: str, *, host: bool = False, shape: tuple[int, ...] = (WIDTH, 1, 1, 1)) -> int:
        """A weight or a cache, or with `host` an input that the host fills."""
        return self._add(name, "NONE", (), None, shape=shape, host=host)

    def node(self, name: str, op: str, *inputs: int, view_of: int | None = None) -> int:
        """A computed tensor."""
        return self._add(name, op, inputs, view_of)

    def _add(
        self,
        name: str,
        op: str,
        inputs: tuple[int, ...],
        view_of: int | None,
        *,
        shape: tuple[int, ...] = (WIDTH, TOKENS, 1, 1),
        host: bool = False,
    ) -> int:
        ordinal = None if op == "NONE" else sum(tensor.op != "NONE" for tensor in self.tensors)
        self.tensors.append(Tensor(name, op, "f32", shape, inputs, view_of, ordinal, host, 4 * WIDTH * TOKENS))
        return len(self.tensors) - 1

    @property
    def flow(self) -> Dataflow:
        return analyse(Graph(tuple(self.tensors)))

    def contract(self, n_layer: int) -> Contract:
        return derive_contract(StepGraphs((Graph(tuple(self.tensors)),), len(self.tensors), ()), n_layer)

    def names(self, boundary: Boundary) -> list[str]:
        return [self.tensors[index].name for index in boundary.tensors]


def start() -> tuple[Drawing, int, int]:
    """Token ids and embeddings: the drawing, the ids and the embedded tokens."""
    drawing = Drawing()
    table = drawing.leaf("token_embd.weight")
    ids = drawing.leaf("inp_tokens", host=True, shape=(TOKENS, 1, 1, 1))
    return drawing, ids, drawing.node("inp_embd_rows", "GET_ROWS", table, ids)


def layer(drawing: Drawing, number: int, previous: int) -> int:
    """One layer with keys in a cache."""
    weight = drawing.leaf(f"blk.{number}.attn.weight")
    cache = drawing.leaf(f"cache_k_l{number}")
    mixed = drawing.node(f"node_{number}", "MUL_MAT", weight, previous)
    drawing.node(f"cache_k_l{number} (view)", "CPY", mixed, cache, view_of=cache)
    read = drawing.node(f"cache_k_l{number} (view) (permuted)", "PERMUTE", cache, view_of=cache)
    attended = drawing.node(f"kq-{number}", "MUL_MAT", read, mixed)
    return drawing.node(f"l_out-{number}", "ADD", attended, previous)


def test_a_plain_chain_crosses_with_its_hidden_state_only() -> None:
    """Of a chain of layers, one tensor crosses each cut, and each layer keeps attention."""
    drawing, _, last = start()
    for number in range(4):
        last = layer(drawing, number, last)
    contract = drawing.contract(4)
    assert contract.legal_cuts == (1, 2, 3)
    for cut in contract.cuts:
        (crossing,) = cut.frontier
        assert (crossing.label, crossing.layer) == (f"l_out-{cut.layer - 1}", cut.layer - 1)
        assert (crossing.width, crossing.dtype) == (WIDTH, "f32")
        assert not cut.tokens
    assert contract.state == (LayerKind.ATTENTION,) * 4
    assert contract.caches == (("k",),) * 4


def test_a_tensor_belongs_to_the_layer_in_its_name() -> None:
    """The name decides before weights and inputs do, also through the suffixes that views add."""
    drawing, _, embedded = start()
    weight = drawing.leaf("blk.5.ffn.weight")
    named = drawing.node("ffn_out-2", "MUL_MAT", weight, embedded)
    view = drawing.node("ffn_out-2 (view) (reshaped)", "RESHAPE", named, view_of=named)
    assert drawing.flow.owner[named] == 2
    assert drawing.flow.owner[view] == 2


def test_a_tensor_belongs_to_no_lower_layer_than_what_it_is_computed_from() -> None:
    """A name that says less (hrm-text counts its stacks from their first layer) would let a cut part it from its source."""
    drawing, _, embedded = start()
    later = drawing.node("l_out-3", "ADD", embedded, embedded)
    named = drawing.node("stack_norm-2", "RMS_NORM", later)
    assert drawing.flow.owner[named] == 3


def test_a_boundary_tensor_waits_for_the_layers_below_that_read_it_too() -> None:
    """It is filled in right before the first layer above reads it; one that nobody below reads, at its own node."""
    drawing, _, embedded = start()
    below = drawing.node("mixed-0", "MUL_MAT", drawing.leaf("blk.0.attn.weight"), embedded)
    lower = drawing.node("l_out-0", "ADD", below, embedded)
    view = drawing.node("l_out-0 (view)", "VIEW", lower, view_of=lower)
    drawing.node("mixed-1", "MUL_MAT", drawing.leaf("blk.1.attn.weight"), view)
    upper = drawing.node("l_out-1", "ADD", embedded, lower)
    flow = drawing.flow
    tensors = flow.graph.tensors
    found = flow.boundary(1)
    assert drawing.names(found) == [tensors[embedded].name, "l_out-0"]
    assert found.moments == ((tensors[upper].ordinal or 0) - 1, tensors[lower].ordinal)


def test_a_boundary_tensor_of_which_a_device_has_a_copy_does_not_wait() -> None:
    """The copy is made before the device begins, of the tensor or of a view of it: what is written later would not arrive."""
    drawing, _, embedded = start()
    view = drawing.node("embedded (view)", "VIEW", embedded, view_of=embedded)
    lower = drawing.node("l_out-0", "MUL_MAT", drawing.leaf("blk.0.attn.weight"), embedded)
    drawing.node("l_out-1", "ADD", view, lower)
    tensors = tuple(drawing.tensors)
    waiting, at_once = analyse(Graph(tensors)).boundary(1), analyse(Graph(tensors, frozenset({view}))).boundary(1)
    assert waiting.tensors == at_once.tensors
    assert waiting.moments != at_once.moments == tuple(tensors[index].ordinal for index in at_once.tensors)


def test_what_the_upper_side_makes_for_itself_needs_the_truth() -> None:
    """A copy without a weight belongs to a layer below and does not cross, so its source may not wait for the layers above."""
    drawing, _, embedded = start()
    lower = drawing.node("l_out-0", "ADD", embedded, embedded)
    drawing.node("gate-0", "MUL_MAT", drawing.leaf("blk.0.gate.weight"), lower)
    copied = drawing.node("l_out-0 (cont)", "CONT", lower)
    drawing.node("l_out-1", "ADD", copied, lower)
    found = drawing.flow.boundary(1)
    assert drawing.names(found) == ["l_out-0"]
    assert found.moments == ((drawing.tensors[copied].ordinal or 0) - 1,)


def test_an_unnamed_tensor_belongs_to_the_layer_of_its_weight() -> None:
    """A node without a layer in its name follows the weight that it reads."""
    drawing, _, embedded = start()
    node = drawing.node("node_7", "MUL_MAT", drawing.leaf("blk.3.ffn.weight"), embedded)
    assert drawing.flow.owner[node] == 3


def test_an_output_weight_belongs_to_the_last_layer() -> None:
    """So does what is made with it of something early (kimi-k3): it is made where it is used and does not cross."""
    drawing, _, embedded = start()
    hidden = layer(drawing, 0, embedded)
    score = drawing.node("node_8", "MUL", hidden, drawing.leaf("output_res_score.weight"))
    for number in (1, 2):
        hidden = layer(drawing, number, hidden)
    drawing.node("result_norm", "MUL", hidden, score)
    assert analyse(Graph(tuple(drawing.tensors)), 3).owner[score] == 2
    assert [crossing.label for crossing in drawing.contract(3).cut(2).frontier] == ["l_out-0", "l_out-1"]


def test_an_unnamed_tensor_belongs_to_the_layer_of_its_cache() -> None:
    """A node without a layer in its name follows the cache that it reads."""
    drawing, _, embedded = start()
    cache = drawing.leaf("cache_s_l6")
    node = drawing.node("node_7", "MUL_MAT", cache, embedded)
    assert drawing.flow.owner[cache] == 6
    assert drawing.flow.owner[node] == 6


def test_a_nameless_tensor_belongs_to_the_highest_layer_of_its_inputs() -> None:
    """Without name, weight and cache, inputs decide; before all layers there is nothing but the embedding."""
    drawing, _, embedded = start()
    low = drawing.node("a-1", "ADD", embedded, embedded)
    high = drawing.node("b-4", "ADD", low, embedded)
    node = drawing.node("node_9", "ADD", low, high)
    flow = drawing.flow
    assert flow.owner[node] == 4
    assert flow.owner[embedded] == BEFORE_LAYERS


def test_what_follows_from_host_inputs_alone_stays_out_of_the_frontier() -> None:
    """Masks and rope tables made of host inputs are made on each side of a cut."""
    drawing, _, last = start()
    mask = drawing.leaf("inp_mask", host=True)
    half = drawing.node("mask_f16", "CPY", mask)
    factors = drawing.node("rope-0", "MUL", drawing.leaf("rope_freqs.weight"), mask)
    lower = drawing.node("l_out-0", "ADD", last, half)
    drawing.node("l_out-1", "SOFT_MAX", lower, half, factors)
    flow = drawing.flow
    assert flow.host_derived[half]
    assert flow.host_derived[factors]
    assert drawing.names(flow.boundary(1)) == ["l_out-0"]


def test_what_follows_from_the_text_crosses() -> None:
    """A tensor made of token ids is no host input: it crosses, though no layer made it."""
    drawing, _, embedded = start()
    lower = drawing.node("l_out-0", "MUL_MAT", drawing.leaf("blk.0.ffn.weight"), embedded)
    drawing.node("l_out-1", "ADD", lower, embedded)
    boundary = drawing.flow.boundary(1)
    assert drawing.names(boundary) == ["inp_embd_rows", "l_out-0"]
    assert not boundary.tokens


def test_a_view_crosses_as_the_tensor_that_it_views() -> None:
    """Views of views lead to the tensor that holds the data, whoever owns the view."""
    drawing, _, embedded = start()
    lower = drawing.node("l_out-0", "ADD", embedded, embedded)
    once = drawing.node("l_out-0 (view)", "VIEW", lower, view_of=lower)
    twice = drawing.node("turned-1", "TRANSPOSE", once, view_of=once)
    drawing.node("l_out-1", "ADD", twice, once)
    flow = drawing.flow
    assert flow.graph.root(twice) == lower
    assert drawing.names(flow.boundary(1)) == ["l_out-0"]


def test_a_tensor_written_in_place_is_not_taken_for_a_view() -> None:
    """An operation that writes into another tensor's memory is a computation of its own."""
    drawing, _, embedded = start()
    lower = drawing.node("a-0", "ADD", embedded, embedded)
    inplace = drawing.node("l_out-0", "SET", lower, embedded, view_of=lower)
    drawing.node("l_out-1", "ADD", inplace, inplace)
    assert drawing.flow.graph.root(inplace) == inplace
    assert drawing.names(drawing.flow.boundary(1)) == ["l_out-0"]


def test_rows_of_a_crossing_tensor_chosen_by_the_host_are_not_carried() -> None:
    """What the upper side can make of what crosses anyway and of host inputs does not cross."""
    drawing, _, embedded = start()
    lower = drawing.node("l_out-0", "ADD", embedded, embedded)
    ids = drawing.leaf("inp_out_ids", host=True)
    rows = drawing.node("node_5", "GET_ROWS", lower, ids)
    drawing.node("l_out-1", "ADD", rows, lower)
    assert drawing.names(drawing.flow.boundary(1)) == ["l_out-0"]


def test_what_follows_from_several_crossing_tensors_is_not_carried() -> None:
    """A sum of two tensors that cross anyway is made again above."""
    drawing, _, embedded = start()
    lower = drawing.node("a-0", "MUL_MAT", drawing.leaf("blk.0.ffn.weight"), embedded)
    total = drawing.node("sum-0", "ADD", lower, embedded)
    drawing.node("l_out-1", "ADD", total, lower, embedded)
    assert drawing.names(drawing.flow.boundary(1)) == ["inp_embd_rows", "a-0"]


def test_rows_are_carried_where_their_source_is_not() -> None:
    """The same rows cross where nothing else above the cut needs the tensor that they come from."""
    drawing, _, embedded = start()
    lower = drawing.node("l_out-0", "ADD", embedded, embedded)
    rows = drawing.node("node_5", "GET_ROWS", lower, drawing.leaf("inp_out_ids", host=True))
    drawing.node("l_out-1", "ADD", rows, rows)
    assert drawing.names(drawing.flow.boundary(1)) == ["node_5"]


def test_a_product_with_a_weight_is_carried() -> None:
    """What the upper side could make only with a weight of the lower one crosses."""
    drawing, _, embedded = start()
    lower = drawing.node("l_out-0", "ADD", embedded, embedded)
    product = drawing.node("node_5", "MUL_MAT", drawing.leaf("blk.0.extra.weight"), lower)
    drawing.node("l_out-1", "ADD", product, lower)
    assert drawing.names(drawing.flow.boundary(1)) == ["l_out-0", "node_5"]


@pytest.mark.parametrize("name", ["inp_tokens", "inp_embd"])
def test_the_text_read_above_a_cut_crosses(name: str) -> None:
    """A layer that looks at the token ids, or at embeddings given in their place, again makes them cross."""
    drawing = Drawing()
    text = drawing.leaf(name, host=True, shape=(TOKENS, 1, 1, 1))
    embedded = drawing.node("embedded", "GET_ROWS", drawing.leaf("token_embd.weight"), text)
    lower = drawing.node("l_out-0", "ADD", embedded, embedded)
    again = drawing.node("per_layer-1", "GET_ROWS", drawing.leaf("blk.1.embd.weight"), text)
    upper = drawing.node("l_out-1", "ADD", lower, again)
    drawing.node("l_out-2", "ADD", upper, upper)
    lower_cut, upper_cut = (drawing.flow.boundary(cut) for cut in (1, 2))
    assert lower_cut.tokens is (name == "inp_tokens")
    assert lower_cut.columns == (() if lower_cut.tokens else ((0, TOKENS),))
    assert not upper_cut.tokens
    assert not upper_cut.columns


def test_a_cache_of_a_lower_layer_read_above_forbids_the_cut_by_name() -> None:
    """KV sharing makes exactly the cuts between owner and reader illegal."""
    drawing, _, last = start()
    for number in range(3):
        last = layer(drawing, number, last)
    shared = next(index for index, tensor in enumerate(drawing.tensors) if tensor.name == "cache_k_l1")
    read = drawing.node("cache_k_l1 (view)", "VIEW", shared, view_of=shared)
    drawing.node("l_out-3", "MUL_MAT", read, last)
    contract = drawing.contract(4)
    assert contract.legal_cuts == (1,)
    assert [cut.forbidden_by for cut in contract.cuts] == [(), ("cache_k_l1",), ("cache_k_l1",)]
    assert contract.state[3] is LayerKind.NEITHER


def test_a_cut_that_nothing_crosses_is_not_legal() -> None:
    """A graph in which no tensor crosses was not understood; no split is made there."""
    drawing, _, embedded = start()
    drawing.node("l_out-0", "ADD", embedded, embedded)
    (cut,) = drawing.contract(2).cuts
    assert not cut.frontier
    assert not cut.legal


@pytest.mark.parametrize(
    ("leaf", "kind"),
    [
        ("conv_states_all-0", LayerKind.RECURRENT),
        ("cache_r_l0", LayerKind.RECURRENT),
        ("cache_s_l0", LayerKind.RECURRENT),
        ("cache_ple_r_l0", LayerKind.RECURRENT),
        ("cache_k_l0", LayerKind.ATTENTION),
        ("cache_v_l0", LayerKind.ATTENTION),
        ("cache_idx_k_l0", LayerKind.ATTENTION),
        ("cache_compressed_l0", LayerKind.UNKNOWN),
        ("memory-0", LayerKind.UNKNOWN),
    ],
)
def test_the_kind_of_a_layer_follows_from_the_caches_that_are_written(leaf: str, kind: LayerKind) -> None:
    """A leaf that the graph writes into is a cache, whatever its name; a kind that nobody knows is unknown."""
    drawing, _, embedded = start()
    cache = drawing.leaf(leaf)
    drawing.node("store-0", "CPY", embedded, cache, view_of=cache)
    drawing.node("l_out-0", "MUL_MAT", cache, embedded)
    drawing.node("l_out-1", "ADD", 0, embedded)
    assert drawing.contract(2).state == (kind, LayerKind.NEITHER)


def test_a_cache_written_through_a_view_is_found() -> None:
    """A write into a view of a leaf is a write into the leaf."""
    drawing, _, embedded = start()
    cache = drawing.leaf("conv_states_all-1")
    slot = drawing.node("conv_states_all-1 (view)", "VIEW", cache, view_of=cache)
    drawing.node("store-1", "CPY", embedded, slot, view_of=slot)
    flow = drawing.flow
    assert {index: (found.layer, found.kind) for index, found in flow.caches.items()} == {cache: (1, "r")}


def test_one_unknown_kind_among_known_ones_is_unknown() -> None:
    """Known caches beside it do not make an unknown state known."""
    drawing, _, embedded = start()
    for name in ("cache_k_l0", "cache_v_l0", "cache_odd_l0"):
        drawing.node(f"read {name}-0", "MUL_MAT", drawing.leaf(name), embedded)
    drawing.node("l_out-1", "ADD", embedded, embedded)
    assert drawing.contract(2).state[0] is LayerKind.UNKNOWN


def test_a_layer_with_both_states_is_both() -> None:
    """Attention and recurrence in one layer are both kept."""
    drawing, _, embedded = start()
    for name in ("cache_k_l0", "cache_v_l0", "cache_r_l0", "cache_s_l0"):
        drawing.node(f"read {name}-0", "MUL_MAT", drawing.leaf(name), embedded)
    drawing.node("l_out-1", "ADD", embedded, embedded)
    contract = drawing.contract(2)
    assert contract.state[0] is LayerKind.BOTH
    assert contract.caches[0] == ("k", "r", "s", "v")


def test_embedding_nodes_are_those_that_read_the_ids_before_the_first_layer() -> None:
    """Views and what layers read are left out."""
    drawing, ids, embedded = start()
    drawing.node("ids (view)", "VIEW", ids, view_of=ids)
    drawing.node("again-1", "GET_ROWS", drawing.leaf("blk.1.embd.weight"), ids)
    assert drawing.flow.embedding_nodes() == (embedded,)


@st.composite
def drawings(draw: st.DrawFn) -> Drawing:
    """A graph of five layers with random reads, views, weights and host inputs, in the order of execution."""
    drawing, _, embedded = start()
    readable = [embedded, drawing.leaf("inp_mask", host=True)]
    for number in range(5):
        for _ in range(draw(st.integers(1, 4))):
            inputs = draw(st.lists(st.sampled_from(readable), min_size=1, max_size=3))
            if draw(st.booleans()):
                inputs.append(drawing.leaf(f"blk.{number}.{len(drawing.tensors)}.weight"))
            named = draw(st.booleans())
            name = f"t{len(drawing.tensors)}-{number}" if named else f"node_{len(drawing.tensors)}"
            if draw(st.integers(0, 3)):
                readable.append(drawing.node(name, "ADD", *inputs))
            else:
                readable.append(drawing.node(name, "VIEW", inputs[0], view_of=inputs[0]))
    return drawing


@given(drawings(), st.integers(1, 4))
def test_the_frontier_is_enough(drawing: Drawing, cut: int) -> None:
    """Whatever the graph: the upper side can compute all of its nodes from frontier, host inputs and its own weights."""
    flow = drawing.flow
    boundary = flow.boundary(cut)
    has: set[int] = set(boundary.tensors)
    for index, tensor in enumerate(drawing.tensors):
        if tensor.op == "NONE":
            lower_weight = tensor.name == "token_embd.weight" or (
                tensor.name.startswith("blk.") and flow.owner[index] < cut
            )
            if tensor.name != "inp_tokens" and not lower_weight:
                has.add(index)
        elif flow.host_derived[index] or all(flow.graph.root(source) in has for source in tensor.inputs):
            has.add(index)
        if tensor.op != "NONE" and flow.owner[index] >= cut:
            assert index in has or flow.graph.root(index) in has, f"{tensor.name} cannot be computed"


@given(drawings(), st.integers(1, 4))
def test_the_frontier_holds_nothing_that_is_not_read_above(drawing: Drawing, cut: int) -> None:
    """Every tensor of a frontier is made below the cut, is no view, and is read by a node above it."""
    flow = drawing.flow
    read = {
        flow.graph.root(source)
        for index, tensor in enumerate(drawing.tensors)
        if flow.owner[index] >= cut
        for source in tensor.inputs
    }
    for index in flow.boundary(cut).tensors:
        assert flow.owner[index] < cut
        assert flow.graph.root(index) == index
        assert index in read
