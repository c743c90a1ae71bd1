"""Layer kinds, from metadata by llama.cpp's rules and from tensor names alone."""

from __future__ import annotations

import pytest

from agent.errors import HeaderInvalid
from agent.header import architectures as arch
from agent.header.layers import (
    blocks_of_layers,
    disagreements,
    layer_kinds_from_metadata,
    layer_kinds_from_tensors,
    period,
)
from agent.layer_kind import LayerKind
from tests.agent.header.kit import array, model, number, read, string, u32

_PARTS = {
    "A": ["attn_q.weight", "attn_k.weight", "attn_v.weight", "attn_output.weight"],
    "R": ["ssm_in.weight", "ssm_conv1d.weight", "ssm_out.weight"],
    "AR": ["attn_q.weight", "attn_k.weight", "ssm_in.weight", "ssm_out.weight"],
    "N": ["ffn_up.weight", "ffn_down.weight", "attn_norm.weight"],
}


def _layers(kinds: list[str], parts: dict[str, list[str]] | None = None) -> list[str]:
    return [f"blk.{index}.{part}" for index, kind in enumerate(kinds) for part in (parts or _PARTS)[kind]]


def _text(kinds: tuple[LayerKind, ...] | None) -> str:
    return "?" if kinds is None else " ".join(kinds)


_HEADS = {"attention.head_count": u32(4)}


def _heads(kv: list[int], **more: bytes) -> dict[str, bytes]:
    return {"block_count": u32(len(kv)), **_HEADS, "attention.head_count_kv": array("i32", kv), **more}


def _ratios(*ratios: int) -> dict[str, bytes]:
    return {"attention.compress_ratios": array("i32", list(ratios))}


def _hrm(stack: int, high: int, low: int) -> dict[str, bytes]:
    return {"hrm.layers_per_stack": u32(stack), "hrm.h_cycles": u32(high), "hrm.l_cycles": u32(low)}


RULES = [
    *[pytest.param(name, {"block_count": u32(3)}, "R R R", id=name) for name in sorted(arch.RECURRENT)],
    *[pytest.param(name, {"block_count": u32(3)}, "AR AR AR", id=name) for name in sorted(arch.BOTH)],
    *[
        pytest.param(name, _heads([0, 2, 0, 0]), "R A R R", id=f"{name}-head-count-kv")
        for name in sorted(arch.BY_HEAD_COUNT_KV)
    ],
    *[
        pytest.param(
            name,
            {"block_count": u32(16)},
            " ".join(["R"] * (every - 1) + ["A"]) + " " + " ".join((["R"] * (every - 1) + ["A"]) * (16 // every - 1)),
            id=f"{name}-default-interval",
        )
        for name, every in sorted(arch.BY_INTERVAL.items())
    ],
    *[
        pytest.param(name, {"block_count": u32(4), "full_attention_interval": u32(2)}, "R A R A", id=f"{name}-interval")
        for name in sorted(arch.BY_INTERVAL)
    ],
    *[
        pytest.param(
            name,
            {"block_count": u32(4), "attention.recurrent_layers": array("bool", [1, 0, 0, 1])},
            "R A A R",
            id=f"{name}-listed",
        )
        for name in sorted(arch.BY_INTERVAL)
    ],
    *[
        pytest.param(
            name,
            _heads([0, 0, 2, 0, 2], feed_forward_length=array("i32", [0, 64, 0, 64, 64])),
            "R N A N N",
            id=f"{name}-head-count-and-feed-forward",
        )
        for name in sorted(arch.BY_HEAD_COUNT_KV_AND_FF)
    ],
    pytest.param("qwen3", {"block_count": u32(3), **_HEADS}, "A A A", id="dense-without-head-count-kv"),
    pytest.param("qwen3", {"block_count": u32(3), **_HEADS, "attention.head_count_kv": u32(2)}, "A A A", id="dense"),
    pytest.param(
        "laguna",
        {"block_count": u32(4), **_HEADS, "attention.sliding_window": u32(512)},
        "A A A A",
        id="laguna-is-dense",
    ),
    pytest.param("nanbeige", {"block_count": u32(2), **_HEADS, "num_loops": u32(3)}, "A A A A A A", id="runs-again"),
    pytest.param("nanbeige", {"block_count": u32(2), **_HEADS}, "A A", id="runs-once"),
    pytest.param("hrm_text", {"block_count": u32(6), **_HEADS, **_hrm(1, 2, 2)}, "A A A A A A", id="two-stacks"),
    pytest.param("deci", _heads([2, 0, 2]), "A N A", id="deci-has-layers-without-attention"),
    pytest.param("deepseek4", {"block_count": u32(3), **_HEADS, **_ratios(0, 4, 128)}, "A AR AR", id="compressed"),
    pytest.param("newarch", {"block_count": u32(2), **_HEADS}, "?", id="unknown-architecture"),
    pytest.param("clip", {"block_count": u32(2)}, "?", id="projector"),
]


@pytest.mark.parametrize(("name", "values", "kinds"), RULES)
def test_the_rule_of_each_architecture(name: str, values: dict[str, bytes], kinds: str) -> None:
    """Metadata gives the kind of every layer as llama.cpp's load_arch_hparams does; unknown layouts give nothing."""
    assert _text(layer_kinds_from_metadata(read(model(name, values)))) == kinds


@pytest.mark.parametrize("name", sorted(arch.RECURRENT | arch.HYBRID))
def test_no_recurrent_architecture_passes_for_dense(name: str) -> None:
    """D8, D13: layer 0 does not decide; a family with recurrent layers always shows them."""
    values = _heads([2] + [0] * 7, feed_forward_length=array("i32", [0] * 8)) | _ratios(*[0] * 7, 4)
    kinds = layer_kinds_from_metadata(read(model(name, values)))
    assert kinds is not None
    assert any(kind.recurrent for kind in kinds)


@pytest.mark.parametrize(
    ("kv", "kinds"),
    [
        pytest.param([0, 2, 2], "R A A", id="D13-recurrent-first"),
        pytest.param([2, 0, 0], "A R R", id="D13-attention-first"),
        pytest.param([0] * 64 + [2] + [0] * 23, " ".join(["R"] * 64 + ["A"] + ["R"] * 23), id="D9-attention-after-layer-64"),
        pytest.param([0] * 511 + [1], " ".join(["R"] * 511 + ["A"]), id="D9-512-layers"),
    ],
)  # fmt: skip
def test_the_whole_array_is_read(kv: list[int], kinds: str) -> None:
    """D8, D9, D13: every element counts, to the last."""
    assert _text(layer_kinds_from_metadata(read(model("jamba", _heads(kv))))) == kinds


@pytest.mark.parametrize(
    ("value", "kinds"),
    [
        pytest.param(array("i32", [0, 2]), "R A", id="D10-i32-array"),
        pytest.param(array("u32", [0, 2]), "R A", id="D10-u32-array"),
        pytest.param(u32(2), "A A", id="D10-scalar"),
        pytest.param(number("i32", 2), "A A", id="D10-i32-scalar"),
    ],
)
def test_both_integer_forms_are_accepted(value: bytes, kinds: str) -> None:
    """D10: a number or a list, signed or not."""
    values = {"block_count": u32(2), **_HEADS, "attention.head_count_kv": value}
    assert _text(layer_kinds_from_metadata(read(model("jamba", values)))) == kinds


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        pytest.param(array("f32", [0, 2]), "bad_value", id="D10-f32-array"),
        pytest.param(array("i32", [0, -2]), "bad_value", id="D10-negative"),
        pytest.param(array("i32", [0]), "bad_value", id="D10-too-short"),
        pytest.param(array("i32", [0, 2, 0]), "bad_value", id="D10-too-long"),
        pytest.param(array("i32", [1] * 5000), "bad_value", id="D10-far-too-long"),
        pytest.param(number("bool", 1), "bad_value", id="D10-bool-scalar"),
        pytest.param(number("f32", 2), "bad_value", id="D10-float-scalar"),
        pytest.param(string("2"), "bad_value", id="D10-string"),
        pytest.param(array("i32", [0, 0]), "bad_layer_map", id="D8-no-attention-at-all"),
    ],
)
def test_other_forms_are_refused(value: bytes, verdict: str) -> None:
    """D10: what is no whole number a layer is an error, and so is a hybrid without attention."""
    values = {"block_count": u32(2), **_HEADS, "attention.head_count_kv": value}
    with pytest.raises(HeaderInvalid) as caught:
        layer_kinds_from_metadata(read(model("jamba", values)))
    assert caught.value.verdict == verdict


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        pytest.param(u32(513), "bad_block_count", id="D7-513"),
        pytest.param(u32(0), "bad_block_count", id="D7-0"),
        pytest.param(u32((1 << 32) - 1), "bad_block_count", id="D7-2^32-1"),
        pytest.param(string("32"), "bad_block_count", id="D7-string"),
        pytest.param(number("bool", 1), "bad_block_count", id="D7-bool"),
        pytest.param(array("u32", [32]), "bad_block_count", id="D7-array"),
        pytest.param(None, "missing_key", id="D7-missing"),
    ],
)
def test_the_number_of_layers_is_bounded(value: bytes | None, verdict: str) -> None:
    """D7: no number of layers that llama.cpp would refuse reaches a sweep over cuts."""
    with pytest.raises(HeaderInvalid) as caught:
        layer_kinds_from_metadata(read(model("qwen3", {} if value is None else {"block_count": value})))
    assert caught.value.verdict == verdict


def test_prediction_layers_are_not_of_the_trunk() -> None:
    """Lists cover all blocks, as llama.cpp demands; the kinds cover the trunk."""
    values = {**_heads([0, 2, 2]), "nextn_predict_layers": u32(1)}
    assert _text(layer_kinds_from_metadata(read(model("jamba", values)))) == "R A"
    values = {"block_count": u32(5), "nextn_predict_layers": u32(1)}
    assert _text(layer_kinds_from_metadata(read(model("qwen35", values)))) == "R R R A"


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        pytest.param({"block_count": u32(2), "nextn_predict_layers": u32(2)}, "bad_block_count", id="no-trunk"),
        pytest.param({"block_count": u32(2), "full_attention_interval": u32(0)}, "bad_value", id="interval-0"),
        pytest.param({"block_count": u32(4), "full_attention_interval": u32(9)}, "bad_layer_map", id="never-attention"),
    ],
)
def test_impossible_hybrids_are_refused(values: dict[str, bytes], verdict: str) -> None:
    """Numbers that llama.cpp would divide by, or that leave nothing, are errors."""
    with pytest.raises(HeaderInvalid) as caught:
        layer_kinds_from_metadata(read(model("qwen3next", values)))
    assert caught.value.verdict == verdict


@pytest.mark.parametrize(
    ("name", "values"),
    [
        pytest.param("nanbeige", {"block_count": u32(2), "num_loops": u32(0)}, id="no-loop"),
        pytest.param("nanbeige", {"block_count": u32(2), "num_loops": u32((1 << 32) - 1)}, id="too-many-loops"),
        pytest.param("hrm_text", {"block_count": u32(6), **_hrm(1, 2, 3)}, id="other-than-block-count"),
        pytest.param("hrm_text", {"block_count": u32(6), **_hrm(1 << 31, 1 << 31, 1 << 31)}, id="too-many-stacks"),
    ],
)
def test_impossible_loops_are_refused(name: str, values: dict[str, bytes]) -> None:
    """Numbers of layers that llama.cpp refuses, without a try to list them."""
    with pytest.raises(HeaderInvalid) as caught:
        layer_kinds_from_metadata(read(model(name, values)))
    assert caught.value.verdict == "bad_block_count"


def test_the_blocks_of_two_stacks() -> None:
    """The low stack runs twice, then the high one, and all of that twice."""
    header = read(model("hrm_text", {"block_count": u32(12), **_hrm(2, 2, 2)}))
    assert blocks_of_layers(header) == (0, 1, 0, 1, 2, 3) * 2


@pytest.mark.parametrize("name", ["qwen3", "mamba", "jamba", "falcon-h1"])
def test_a_list_of_recurrent_layers_must_not_lie(name: str) -> None:
    """llama.cpp writes the list for every architecture; where it reads it for none, it must still be true."""
    truth = layer_kinds_from_metadata(read(model(name, _heads([0, 2]))))
    assert truth is not None
    flags = [kind.recurrent for kind in truth]
    told = {"attention.recurrent_layers": array("u32", flags)}
    assert layer_kinds_from_metadata(read(model(name, _heads([0, 2]) | told))) == truth
    lied = {"attention.recurrent_layers": array("u32", [not flag for flag in flags])}
    with pytest.raises(HeaderInvalid) as caught:
        layer_kinds_from_metadata(read(model(name, _heads([0, 2]) | lied)))
    assert caught.value.verdict == "bad_layer_map"


# the names that llama.cpp's load_arch_tensors asks for in each kind of layer
NAMES = [
    pytest.param(["attn_q.weight", "attn_k.weight", "attn_v.weight"], "A", id="attention"),
    pytest.param(["attn_qkv.weight", "attn_output.weight"], "A", id="attention-fused"),
    pytest.param(["attn_qkv.weight", "attn_norm_2.weight"], "A", id="falcon"),
    pytest.param(["attn_q_a.weight", "attn_q_b.weight", "attn_kv_a_mqa.weight", "attn_k_b.weight"], "A", id="mla"),
    pytest.param(["attn_q.weight", "indexer.attn_k.weight", "indexer.k_norm.weight"], "A", id="indexer"),
    pytest.param(["ssm_in.weight", "ssm_conv1d.weight", "ssm_x.weight", "ssm_a", "ssm_d"], "R", id="mamba"),
    pytest.param(["time_mix_key.weight", "channel_mix_key.weight"], "R", id="rwkv6"),
    pytest.param(["time_mix_w1.weight", "time_mix_r_k.weight"], "R", id="rwkv7"),
    pytest.param(["shortconv.conv.weight", "shortconv.in_proj.weight"], "R", id="lfm2"),
    pytest.param(["attn_qkv.weight", "attn_gate.weight", "ssm_ba.weight", "ssm_conv1d.weight"], "R", id="qwen3next"),
    pytest.param(["ssm_in.weight", "ssm_ba.weight", "ssm_a"], "R", id="qwen3next-legacy"),
    pytest.param(["attn_qkv.weight", "ssm_alpha.weight", "ssm_beta.weight"], "R", id="qwen35"),
    pytest.param(["attn_q.weight", "attn_k.weight", "ssm_conv1d_q.weight", "ssm_f_a.weight", "ssm_beta.weight"], "R", id="kimi-linear"),  # noqa: E501
    pytest.param(["attn_qkv.weight", "attn_gate.weight", "attn_norm_2.weight"], "R", id="minimax-01"),
    pytest.param(["attn_q.weight", "attn_k.weight", "ssm_in.weight", "ssm_norm.weight"], "AR", id="falcon-h1"),
    pytest.param(["attn_q.weight", "shortconv_k.weight", "shortconv_mlp.weight"], "AR", id="inkling"),
    pytest.param(["ffn_up.weight", "attn_norm.weight"], "N", id="nemotron-h-feed-forward"),
    pytest.param(["attn_output.weight", "attn_norm.weight", "ffn_up.weight"], "N", id="deci-linear"),
]  # fmt: skip


@pytest.mark.parametrize(("parts", "kind"), NAMES)
def test_tensor_names_give_the_kind(parts: list[str], kind: str) -> None:
    """Each family's own tensors are recognised, the linear attentions that borrow attention's names too."""
    header = read(model("llama", {}, [f"blk.0.{part}" for part in parts]))
    assert _text(layer_kinds_from_tensors(header)) == kind


def test_every_layer_counts_and_gaps_are_seen() -> None:
    """D13: layers come in number order, and one without tensors is neither."""
    header = read(model("llama", {}, ["blk.2.attn_q.weight", "token_embd.weight", "blk.0.ssm_in.weight"]))
    assert _text(layer_kinds_from_tensors(header)) == "R N A"


@pytest.mark.parametrize("name", ["blk.512.attn_q.weight", "blk.99999999999999999999.attn_q.weight"])
def test_a_layer_number_beyond_the_limit_is_refused(name: str) -> None:
    """D7: a tensor's name cannot make a list of 10^20 layers."""
    with pytest.raises(HeaderInvalid) as caught:
        layer_kinds_from_tensors(read(model("llama", {}, [name])))
    assert caught.value.verdict == "bad_layer_map"


@pytest.mark.parametrize(
    "name", ["blk.00.attn_q.weight", "blk.-1.attn_q.weight", "v.blk.0.attn_q.weight", "blk.\u0661.attn_q"]
)
def test_names_that_only_look_like_layers_are_not(name: str) -> None:
    """Only blk.N. with a plain decimal N is a layer."""
    assert layer_kinds_from_tensors(read(model("llama", {}, [name]))) == ()


def test_agreement_is_silent() -> None:
    """The same map from both sides gives no line."""
    header = read(model("jamba", _heads([0, 2, 0, 2]), _layers(["R", "A", "R", "A"])))
    assert disagreements(header) == ()


@pytest.mark.parametrize("wrong", range(4))
def test_one_wrong_layer_is_named(wrong: int) -> None:
    """D13: a difference in any one layer, not only the first, is found and named."""
    kinds = ["R", "A", "R", "A"]
    kinds[wrong] = "R" if kinds[wrong] == "A" else "A"
    (line,) = disagreements(read(model("jamba", _heads([0, 2, 0, 2]), _layers(kinds))))
    assert line.startswith(f"layer {wrong}: ")


def test_missing_layers_are_named() -> None:
    """A file that lacks the last layers' tensors does not pass."""
    assert disagreements(read(model("jamba", _heads([0, 2, 0, 2]), _layers(["R", "A"]))))


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        pytest.param("R" * 24, 1, id="all-alike"),
        pytest.param("RRRA" * 12, 4, id="qwen3next"),
        pytest.param(("R" * 7 + "A" + "R" * 6) * 2, 14, id="jamba2-3b"),
        pytest.param("RRRA" * 6 + "RRA", None, id="kimi-linear-ends-early"),
        pytest.param("RRARRARRARARARAR", None, id="lfm2-350m"),
        pytest.param("RRA", None, id="seen-once"),
        pytest.param("RARAR", 2, id="ends-within-a-period"),
        pytest.param("A", None, id="one-layer"),
        pytest.param("", None, id="none"),
    ],
)
def test_the_period_must_be_seen_twice(kinds: str, expected: int | None) -> None:
    """The shortest repeating pattern, and nothing where there is none."""
    assert period(tuple(LayerKind(kind) for kind in kinds)) == expected


def test_every_architecture_is_in_one_class() -> None:
    """No name is classified twice."""
    classes = [arch.RECURRENT, arch.HYBRID, arch.LOOPED, arch.ENCODER, arch.ENCODER_DECODER]
    classes += [arch.DIFFUSION, arch.DRAFT, arch.AUDIO, arch.DENSE]
    assert sum(map(len, classes)) == len(arch.KNOWN)
