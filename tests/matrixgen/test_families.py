"""The rows of families.json: nothing of the sources is lost, and labels are not taken for architectures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from matrixgen.family import Family
from matrixgen.manifest import Manifest


def words(text: str) -> list[str]:
    """The names in a text."""
    return text.split()


TIER_1 = words(
    """
qwen3-dense qwen2 llama glm47-flash glm4 deepseek2 deepseek3 qwen3moe qwen3vlmoe minimax-m27 jamba kimi-linear qwen3next
mamba mamba2 rwkv6 rwkv7 falcon-h1 granite-hybrid lfm2 laguna
"""
)
TIER_2 = words(
    """
qwen2vl qwen3vl gemma2 gemma3 gemma3n gemma4-a4b gemma4-e4b phi2 phi3 phimoe granite hunyuan-dense hunyuan-moe hunyuan-vl
falcon internlm2 olmo olmo2 olmoe mistral3 qwen2moe exaone exaone4 exaone-moe cohere2 qwen35 smollm3 minicpm minicpm3
plamo3 deepseek2ocr
"""
)
TIER_3 = words(
    """
gpt2 bloom gptneox mpt codeshell openelm refact stablelm plm arcee deci chatglm baichuan granite-moe smallthinker
maincoder xverse starcoder2
"""
)
# The parity document's board and evidence, by the stem of llama.cpp's model file.
BOARD = words(
    """
qwen2 deepseek mistral3 mistral4 lfm2 gpt2 gemma gemma3n mpt olmo2 olmoe qwen3vl phi3 phi2 granite granite-hybrid
granite-moe hunyuan-dense hunyuan-moe hunyuan-vl bloom gptneox openai-moe baichuan exaone exaone4 ernie4-5-moe
nemotron-h-moe command-r cohere2 jamba kimi-linear falcon internlm2 stablelm starcoder2 mamba mamba2 rwkv6 qwen2vl
qwen2moe qwen3moe qwen3vlmoe arcee chatglm codeshell deci qwen35 qwen35moe xverse maincoder mimo2 openelm minicpm
minicpm3 plamo3 plm refact smallthinker smollm3 llama4 seed-oss deepseek2ocr laguna inkling glm4-moe phimoe exaone-moe
bert t5 rwkv7 qwen3next
"""
)
# The rest of the candidate list, by stem.
CANDIDATES = words(
    """
afmoe apertus arctic arwkv7 bailingmoe bailingmoe2 bailingmoe3 bitnet chameleon clip cogvlm cohere2moe dbrx deepseek2
deepseek32 deepseek4 delta-net-base dflash dots1 dots3note dream eagle3 ernie4-5 eurobert falcon-h1 gemma-embedding gemma2
gemma3 gemma4 gemma4-assistant glm-dsa glm4 granite-swa granite-switch grok grovemoe hy-v3 hy-v4 jais jais2 jina-bert-v2
jina-bert-v3 kimi-k3 lfm2moe llada llada-moe llama llama-embed mamba-base mellum minimax-01 minimax-m2 minimax-m3
modern-bert muse-glimmer nanbeige nemotron nemotron-h neo-bert nomic-bert nomic-bert-moe olmo orion paddleocr pangu-embed
plamo plamo2 pockettts qwen qwen3 qwen3tts qwen4exp rnd1 rwkv6-base rwkv6qwen2 rwkv7-base spark2-5 starcoder step35
t5encoder talkie wavtokenizer-dec
"""
)


@pytest.mark.parametrize("name", [*TIER_1, *TIER_2, *TIER_3])
def test_every_row_of_the_issue_is_there(live: Manifest, name: str) -> None:
    """No family of the issue's three tiers is lost, wherever a maintainer moves it."""
    assert live.family(name).reason


def test_issue_lists_are_whole() -> None:
    """The lists above have the issue's own numbers."""
    assert (len(TIER_1), len(TIER_2), len(TIER_3)) == (21, 31, 18)
    assert len({*TIER_1, *TIER_2, *TIER_3}) == 70


@pytest.mark.parametrize("stem", [*BOARD, *CANDIDATES])
def test_every_model_of_the_parity_sources_has_a_row(live: Manifest, stem: str) -> None:
    """Each llama.cpp model of the board, the evidence and the candidate list is covered by a row with a status."""
    assert any(stem in family.llama_models and family.status for family in live.families)


def test_every_model_file_of_the_binding_has_a_row(live: Manifest) -> None:
    """The three models that llama.cpp v0.5.0 has and no source names are there too."""
    covered = {stem for family in live.families for stem in family.llama_models}
    assert {"glm5-next", "hrm-text", "maple"} <= covered


@pytest.mark.parametrize(
    ("name", "arch"),
    [
        ("glm4", "glm4"),
        ("glm47-flash", "deepseek2"),
        ("deepseek2", "deepseek2"),
        ("deepseek3", "deepseek32"),
        ("minimax-m27", "minimax-m2"),
        ("mamba2", "mamba2"),
        ("openai-moe", "gpt-oss"),
        ("granite-hybrid", "granitehybrid"),
        ("chatglm", "chatglm"),
        ("mistral3", "mistral3"),
    ],
)
def test_label_is_not_architecture(live: Manifest, name: str, arch: str) -> None:
    """Where label and header differ in public, the row says what the header says."""
    assert live.family(name).arch == arch


def test_glm4_is_no_chatglm_file(live: Manifest) -> None:
    """The glm4 row uses GLM-4-9B-0414, whose architecture no tombstone drops."""
    artifact = live.family("glm4").artifact
    assert artifact is not None
    assert artifact.repo == "unsloth/GLM-4-9B-0414-GGUF"
    assert artifact.pinned


def test_mamba2_is_not_pinned_to_a_mamba1_file(live: Manifest) -> None:
    """A real mamba2 row waits for a real file and says why."""
    family = live.family("mamba2")
    assert family.artifact is None
    assert "Mamba-1" in family.notes


def test_laguna_is_dense(live: Manifest) -> None:
    """Sliding windows are not recurrence."""
    family = live.family("laguna")
    assert (family.shape, family.cache) == ("dense", "ResidentKv")
    assert family.package is not None
    assert family.package.revision == "0c467ad441ee94cb5a76f626294d963c4048507d"


@pytest.mark.parametrize("name", ["gemma", "apertus", "inkling", "gemma3-270m"])
def test_families_that_need_f32(live: Manifest, name: str) -> None:
    """The f16 wire is rejected where the evidence rejected it."""
    assert live.family(name).wire.f16 == "rejected"


def test_f32_is_always_required(live: Manifest) -> None:
    """The exact wire is owed by every family."""
    assert {family.wire.f32 for family in live.families} == {"required"}


@pytest.mark.parametrize(
    ("name", "exact"), [("qwen2", "accepted"), ("phi2", "too-large"), ("qwen2vl", "mrope"), ("mamba2", "untested")]
)
def test_exact_state_follows_the_board(live: Manifest, name: str, exact: str) -> None:
    """The column Exact State of the parity document, in our words."""
    assert live.family(name).exact_state == exact


def test_recurrent_families_never_use_resident_kv(live: Manifest) -> None:
    """The negative policy of the parity document."""
    stateful = [family for family in live.families if family.shape in ("recurrent", "hybrid")]
    assert len(stateful) > 20
    assert all(family.cache in ("KvRecurrent", "disabled") for family in stateful)


def test_round_trip(live: Manifest) -> None:
    """A row read and written is the same row, key order included."""
    raw = json.loads((live.root / "families.json").read_text(encoding="utf-8"))["families"]
    assert [json.dumps(family.to_row()) for family in live.families] == [json.dumps(row) for row in raw]
    assert [Family.from_row(family.to_row()) for family in live.families] == list(live.families)


def test_no_machine_path_in_the_data(live: Manifest) -> None:
    """Notes carry facts, not paths of somebody's disk."""
    text = (live.root / "families.json").read_text(encoding="utf-8")
    assert not [bad for bad in ("/Users/", "/Volumes/", "/home/", "$TMPDIR", "target/") if bad in text]


def test_one_family_one_line(live: Manifest) -> None:
    """Line count is row count plus the four lines around them."""
    lines = Path(live.root / "families.json").read_text(encoding="utf-8").splitlines()
    assert len(lines) == len(live.families) + 5
