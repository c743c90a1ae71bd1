"""The arithmetic oracle against the figures of the parity document, and against public configurations."""

from __future__ import annotations

import pytest

from agent.errors import HeaderInvalid
from agent.header.layers import layer_kinds_from_metadata
from agent.header.state_size import kv_owners, kv_page_bytes, recurrent_bytes, recurrent_widths, window_bytes
from tests.agent.header.kit import array, model, read, u32


def _every(n: int, period: int, value: int = 1) -> bytes:
    """Return KV heads of a model whose every `period`-th layer is attention."""
    return array("i32", [value if (index + 1) % period == 0 else 0 for index in range(n)])


def _at(n: int, layers: tuple[int, ...], value: int) -> bytes:
    return array("i32", [value if index in layers else 0 for index in range(n)])


def _ssm(layers: int, kernel: int, inner: int, state: int, groups: int | None = None) -> dict[str, bytes]:
    values = {
        "block_count": u32(layers),
        "ssm.conv_kernel": u32(kernel),
        "ssm.inner_size": u32(inner),
        "ssm.state_size": u32(state),
    }
    return values if groups is None else values | {"ssm.group_count": u32(groups)}


_KIMI_ATTENTION = (3, 7, 11, 15, 19, 23, 26)
_LFM2_ATTENTION = (2, 5, 8, 10, 12, 14)
# dimensions of the public configurations, as the converters write them
MODELS: dict[str, tuple[str, dict[str, bytes]]] = {
    "Mamba-130m": ("mamba", _ssm(24, 4, 1536, 16)),
    "mamba-2.8b-hf": ("mamba", _ssm(64, 4, 5120, 16)),
    "RWKV6-1.6B": ("rwkv6", {"block_count": u32(24), "embedding_length": u32(2048), "wkv.head_size": u32(64)}),
    "RWKV7-191M": (
        "rwkv7",
        {"block_count": u32(12), "embedding_length": u32(768), "wkv.head_size": u32(64), "token_shift_count": u32(2)},
    ),
    "Falcon-H1-1.5B": (
        "falcon-h1",
        _ssm(24, 4, 3072, 256, 1)
        | {
            "embedding_length": u32(2048),
            "attention.head_count": u32(8),
            "attention.head_count_kv": u32(2),
            "attention.key_length": u32(128),
            "attention.value_length": u32(128),
        },
    ),
    "Granite-4.0-H-350M": (
        "granitehybrid",
        _ssm(32, 4, 1536, 128, 1)
        | {
            "embedding_length": u32(768),
            "attention.head_count": u32(12),
            "attention.head_count_kv": _at(32, (10, 13, 17, 27), 4),
        },
    ),
    "Jamba2-3B": (
        "jamba",
        _ssm(28, 4, 5120, 16)
        | {
            "embedding_length": u32(2560),
            "attention.head_count": u32(20),
            "attention.head_count_kv": _at(28, (7, 21), 1),
        },
    ),
    "LFM2-350M": (
        "lfm2",
        {
            "block_count": u32(16),
            "embedding_length": u32(1024),
            "shortconv.l_cache": u32(3),
            "attention.head_count": u32(16),
            "attention.head_count_kv": _at(16, _LFM2_ATTENTION, 8),
        },
    ),
    "Qwen3-Coder-Next": ("qwen3next", _ssm(48, 4, 4096, 128, 16)),
    "Kimi-Linear-48B": (
        "kimi-linear",
        {
            "block_count": u32(27),
            "embedding_length": u32(2304),
            "kda.head_dim": u32(128),
            "ssm.conv_kernel": u32(4),
            "attention.head_count": u32(32),
            "attention.head_count_kv": _at(27, _KIMI_ATTENTION, 1),
            "attention.key_length": u32(512 + 64),
            "attention.value_length": u32(512),
            "attention.key_length_mla": u32(192),
            "attention.value_length_mla": u32(128),
        },
    ),
}
EVIDENCE = [
    ("Mamba-130m", 24, 2_802_268),
    ("mamba-2.8b-hf", 64, 24_905_244),
    ("RWKV6-1.6B", 24, 12_976_732),
    ("RWKV7-191M", 12, 2_433_340),
    ("Falcon-H1-1.5B", 24, 76_530_268),
    ("Granite-4.0-H-350M", 28, 22_622_908),
    ("Jamba2-3B", 26, 10_117_772),
    ("LFM2-350M", 10, 82_188),
    ("Qwen3-Coder-Next", 36, 79_037_308),
    ("Kimi-Linear-48B", 20, 44_892_668),
]


@pytest.mark.parametrize(("name", "layers", "n_bytes"), EVIDENCE, ids=[row[0] for row in EVIDENCE])
def test_the_ten_figures_of_the_parity_document(name: str, layers: int, n_bytes: int) -> None:
    """Recurrent layers and bytes follow from the metadata alone."""
    header = read(model(*MODELS[name]))
    kinds = layer_kinds_from_metadata(header)
    assert kinds is not None
    assert sum(kind.recurrent for kind in kinds) == layers
    assert recurrent_bytes(header) == n_bytes


def test_a_real_mamba2_would_have_other_bytes() -> None:
    """The row that the evidence calls Mamba2 is a Mamba-1 file: Mamba-2 dimensions give 171,902,492."""
    assert recurrent_bytes(read(model("mamba2", _ssm(64, 4, 5120, 128, 1)))) == 171_902_492


@pytest.mark.parametrize(
    ("name", "values", "n_bytes"),
    [
        pytest.param("mamba", _ssm(8, 4, 256, 128), 1_073_372, id="mamba"),
        pytest.param(
            "jamba",
            _ssm(8, 4, 256, 128) | {"attention.head_count": u32(4), "attention.head_count_kv": _every(8, 4, 4)},
            805_036,
            id="jamba",
        ),
    ],
)
def test_the_figures_of_the_twins(name: str, values: dict[str, bytes], n_bytes: int) -> None:
    """The same arithmetic gives what stock llama.cpp exported for two twins."""
    assert recurrent_bytes(read(model(name, values))) == n_bytes


def test_keys_of_other_architectures_do_not_count() -> None:
    """As in llama.cpp, each architecture loads its own keys: a stray wkv or kda key changes nothing."""
    values = _ssm(8, 4, 256, 128) | {"wkv.head_size": u32(64), "kda.head_dim": u32(128), "shortconv.l_cache": u32(3)}
    assert recurrent_bytes(read(model("mamba", values))) == 1_073_372


def test_a_stage_owns_its_layers_only() -> None:
    """A range counts its own recurrent layers; the frame of the blob stays even where it holds none."""
    header = read(model(*MODELS["Jamba2-3B"]))
    layer = (10_117_772 - 28) // 26
    assert recurrent_bytes(header, range(10)) == 28 + 9 * layer
    assert recurrent_bytes(header, range(10)) + recurrent_bytes(header, range(10, 28)) == 10_117_772 + 28
    assert recurrent_bytes(header, [7]) == 28
    assert recurrent_bytes(header, [3, 3]) == 28 + layer


def test_a_dense_model_has_no_recurrent_bytes() -> None:
    """Nothing is exported where no layer is recurrent."""
    assert recurrent_bytes(read(model("qwen3", {"block_count": u32(4), "attention.head_count": u32(4)}))) == 0


@pytest.mark.parametrize("layers", [[28], [-1], [0, 99]])
def test_layers_that_do_not_exist_are_a_mistake_of_the_caller(layers: list[int]) -> None:
    """A range outside of the model is never silently cut."""
    with pytest.raises(ValueError, match="of a model of 28"):
        recurrent_bytes(read(model(*MODELS["Jamba2-3B"])), layers)


KV = [
    pytest.param("Kimi-Linear-48B", 8, None, 64_512, id="kimi-linear-latent-keys-only"),
    pytest.param("Falcon-H1-1.5B", 16, None, 393_216, id="falcon-h1"),
    pytest.param("Falcon-H1-1.5B", 16, range(8, 16), 131_072, id="falcon-h1-8-of-24-layers"),
    pytest.param("LFM2-350M", 16, None, 196_608, id="lfm2"),
    pytest.param("LFM2-350M", 16, range(5, 9), 65_536, id="lfm2-2-attention-layers"),
    pytest.param("LFM2-350M", 16, range(9, 16), 98_304, id="lfm2-3-attention-layers"),
    pytest.param("Mamba-130m", 16, None, 0, id="mamba-has-none"),
    pytest.param("Jamba2-3B", 16, range(8, 21), 0, id="jamba-recurrent-range"),
]


@pytest.mark.parametrize(("name", "tokens", "layers", "n_bytes"), KV)
def test_the_bytes_of_keys_and_values(name: str, tokens: int, layers: range | None, n_bytes: int) -> None:
    """Figures of the parity document: they scale with the owned attention layers."""
    assert kv_page_bytes(read(model(*MODELS[name])), tokens, layers) == n_bytes


def test_heads_may_differ_by_layer_and_window() -> None:
    """Sliding-window layers have their own head lengths where the file says so, and shared layers keep nothing."""
    values = {
        "block_count": u32(4),
        "embedding_length": u32(256),
        "attention.head_count": u32(4),
        "attention.head_count_kv": array("i32", [1, 1, 2, 2]),
        "attention.key_length": u32(64),
        "attention.value_length": u32(64),
        "attention.key_length_swa": u32(32),
        "attention.value_length_swa": u32(32),
        "attention.sliding_window_pattern": array("bool", [1, 0, 0, 1]),
        "attention.shared_kv_layers": u32(1),
    }
    header = read(model("gemma4", values))
    assert kv_owners(header) == (True, True, True, False)
    assert kv_page_bytes(header, 1, [0]) == (32 + 32) * 2
    assert kv_page_bytes(header, 1, [1]) == (64 + 64) * 2
    assert kv_page_bytes(header, 1, [2]) == 2 * (64 + 64) * 2
    assert kv_page_bytes(header, 1, [3]) == 0
    assert kv_page_bytes(header, 3) == 3 * 2 * (64 + 128 + 256)
    unlisted = {key: value for key, value in values.items() if not key.endswith("pattern")}
    with pytest.raises(HeaderInvalid):
        kv_page_bytes(read(model("gemma4", unlisted)), 1)


@pytest.mark.parametrize(
    ("name", "values", "widths"),
    [
        pytest.param(
            "minimax-01",
            {"block_count": u32(8), "embedding_length": u32(128), "attention.head_count": u32(4)},
            (0, 32 * 32 * 4),
            id="lightning-attention",
        ),
        pytest.param(
            "kimi-k3",
            {"block_count": u32(8), "kda.head_dim": u32(16), "ssm.conv_kernel": u32(0), "attention.head_count": u32(4)},
            (3 * 3 * 4 * 16, 16 * 16 * 4),
            id="delta-attention-default-kernel",
        ),
    ],
)
def test_the_other_layouts(name: str, values: dict[str, bytes], widths: tuple[int, int]) -> None:
    """Layouts without public evidence follow llama-hparams.cpp."""
    assert recurrent_widths(read(model(name, values))) == widths


def test_a_second_recurrent_row_is_counted() -> None:
    """Qwen4 keeps an n-gram convolution history beside the state of the layers that have one."""
    values = _ssm(8, 4, 256, 128, 1) | {
        "embedding_length": u32(64),
        "hyper_connection.count": u32(2),
        "ple.layers": array("u32", [1]),
        "ple.conv_kernel": u32(4),
        "ple.ngram_size": u32(3),
    }
    header = read(model("qwen4exp", values))
    assert recurrent_bytes(header, [1]) - recurrent_bytes(header, [0]) == 8 + 4 * 3 * 3 * 2 * 64


def _small(**more: bytes) -> dict[str, bytes]:
    counts = {"attention.head_count": u32(4), "attention.head_count_kv": u32(2)}
    return {"block_count": u32(8), "embedding_length": u32(64), **counts, **more}


def test_blocks_that_run_again_keep_keys_and_values_each_time() -> None:
    """Two loops of eight blocks keep those of sixteen layers."""
    header = read(model("nanbeige", _small(num_loops=u32(2))))
    assert kv_page_bytes(header, 1) == 16 * 2 * (16 + 16) * 2
    assert kv_page_bytes(header, 1, range(12, 16)) == 4 * 2 * (16 + 16) * 2


def test_a_router_keeps_one_head_more_with_the_first_layer() -> None:
    """Granite Switch chooses an adapter before layer 0, by attention over all tokens."""
    header = read(model("graniteswitch", _small()))
    layers = 8 * 2 * (16 + 16) * 2
    assert kv_page_bytes(header, 1) == layers + (16 + 16) * 2
    assert kv_page_bytes(header, 1, range(4, 8)) == layers // 2


@pytest.mark.parametrize("missing", ["ssm.conv_kernel", "ssm.inner_size", "ssm.state_size", "ssm.group_count"])
def test_a_missing_dimension_is_named(missing: str) -> None:
    """No size is guessed."""
    values = {key: value for key, value in _ssm(4, 4, 256, 128, 1).items() if key != missing}
    with pytest.raises(HeaderInvalid, match=missing):
        recurrent_bytes(read(model("mamba2", values)))


def test_an_unknown_layout_has_no_size() -> None:
    """Where the layout is unknown, so is the size."""
    header = read(model("newarch", {"block_count": u32(2)}))
    for size in (recurrent_bytes, lambda header: kv_page_bytes(header, 1)):
        with pytest.raises(HeaderInvalid):
            size(header)


def _compressed(*ratios: int) -> dict[str, bytes]:
    return {
        "block_count": u32(3),
        "embedding_length": u32(64),
        "attention.head_count": u32(1),
        "attention.head_count_kv": u32(1),
        "attention.key_length": u32(64),
        "attention.value_length": u32(64),
        "attention.sliding_window": u32(16),
        "attention.indexer.key_length": u32(32),
        "attention.compress_ratios": array("i32", list(ratios)),
    }


def test_compressed_caches() -> None:
    """Counted by hand from llama-kv-cache-dsv4.cpp: rows of 4 and of 128 tokens, and what is not compressed yet."""
    header = read(model("deepseek4", _compressed(0, 4, 128, 0)))
    few = 4 + 2 * (28 + 4 * 8 * 128) + 4 + 2 * (28 + 4 * 8 * 64)
    many = 4 + 2 * (28 + 4 * 128 * 64)
    assert recurrent_bytes(header, [0]) == 20 + 3 * 24
    assert recurrent_bytes(header, [1]) == 20 + 3 * 24 + few
    assert recurrent_bytes(header) == 20 + 3 * 24 + few + many
    assert kv_page_bytes(header, 3) == 2 * 3 * 3 * 64
    assert kv_page_bytes(header, 260) == 2 * (3 * 260 * 64 + 65 * (64 + 32) + 2 * 64)
    assert window_bytes(header, 8, 4) == 4 + 4 * 4 + 8 + 8 * 12 + 3 * (12 + 8 * 128)
    assert window_bytes(header, 99, 1) == 4 + 4 + 8 + 16 * 12 + 3 * (12 + 16 * 128)


@pytest.mark.parametrize(
    ("ratios", "words"),
    [((4, 4), "a number for each of the 3 layers"), ((0, 4, 8), "for ratios of 4 and 128 only"), ((), "a number for")],
)
def test_compressed_caches_of_no_known_ratio(ratios: tuple[int, ...], words: str) -> None:
    """What llama.cpp refuses, or would leave without a cache."""
    with pytest.raises(HeaderInvalid, match=words):
        recurrent_bytes(read(model("deepseek4", _compressed(*ratios))))
