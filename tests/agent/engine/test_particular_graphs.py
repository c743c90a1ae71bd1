"""What single architectures do in their graphs: other names of caches, a layer before layer 0, ids without a name."""

from __future__ import annotations

from agent.engine.dataflow import BEFORE_LAYERS, analyse
from agent.engine.graph import Graph
from agent.layer_kind import LayerKind
from tests.agent.engine.test_dataflow import TOKENS, Drawing, layer, start


def test_the_compressor_states_of_deepseek4_belong_to_their_layer() -> None:
    """A second prefix of caches: recurrent state beside the keys, and no reason to forbid the cuts below."""
    drawing, _, hidden = start()
    hidden = layer(drawing, 0, hidden)
    state = drawing.leaf("dsv4_csa_state_kv_l1")
    drawing.node("compressed-1", "MUL_MAT", state, hidden)
    drawing.node("dsv4_csa_state_kv_l1 (view)", "CPY", hidden, state, view_of=state)
    layer(drawing, 1, hidden)
    contract = drawing.contract(2)
    assert contract.caches == (("k",), ("csa_state_kv", "k"))
    assert contract.state == (LayerKind.ATTENTION, LayerKind.BOTH)
    assert contract.legal_cuts == (1,)


def _with_router() -> Drawing:
    """Two layers that both read what a third one, which runs before them, has chosen from its cache."""
    drawing = Drawing()
    signal = drawing.leaf("leaf_0", host=True, shape=(TOKENS, 1, 1, 1))
    drawing.leaf("attn_inp_k_idxs", host=True, shape=(TOKENS, 1, 1, 1))
    cache = drawing.leaf("cache_k_l2")
    drawing.node("cache_k_l2 (view)", "CPY", signal, cache, view_of=cache)
    routed = drawing.node("router_out-2", "MUL_MAT", cache, signal)
    chosen = drawing.node("adapter_ids", "CPY", routed)
    hidden = drawing.node("embedded", "GET_ROWS", drawing.leaf("token_embd.weight"), signal)
    for number in range(2):
        adapted = drawing.node(f"adapted-{number}", "ADD", hidden, chosen)
        hidden = layer(drawing, number, adapted)
    return drawing


def test_a_router_before_the_layers_crosses_every_cut() -> None:
    """Its layer lies beyond the trunk and runs first: what it chose crosses, and its cache forbids nothing."""
    drawing = _with_router()
    (cut,) = drawing.contract(2).cuts
    assert [crossing.label for crossing in cut.frontier] == ["adapter_ids", "l_out-0"]
    assert cut.legal
    flow = analyse(Graph(tuple(drawing.tensors)), 2)
    owner = {tensor.name: flow.owner[index] for index, tensor in enumerate(drawing.tensors)}
    assert owner["router_out-2"] == owner["adapter_ids"] == BEFORE_LAYERS


def test_tokens_are_counted_where_their_ids_have_no_name() -> None:
    """By the cells that are written, one a token; so a crossing has the same width in every step."""
    assert _with_router().flow.n_tokens == TOKENS
