"""What a stage owns: any division of the layers gives every tensor to one stage."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import StageInvalid
from agent.header.reader import TensorInfo
from agent.package.manifest import Package
from agent.package.ownership import Owner, Shared, owner_of, words
from agent.package.stage import is_tied, parse_range, stage_parts, trunk_layers
from tests.agent.package.conftest import Packages
from tests.agent.package.kit import KINDS, edit_manifest, package_of, reread, with_prediction_head


@pytest.fixture(scope="session")
def predicting(tmp_path_factory: pytest.TempPathFactory) -> Package:
    """A package of eight layers and a prediction head."""
    folder = tmp_path_factory.mktemp("predicting")
    return package_of(with_prediction_head("glm4moe", folder / "model.gguf"), folder / "package")


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("token_embd.weight", Shared.EMBEDDINGS),
        ("per_layer_token_embd.weight", Shared.EMBEDDINGS),
        ("token_embd_norm.weight", Shared.METADATA),
        ("rope_freqs.weight", Shared.METADATA),
        ("output.weight", Shared.OUTPUT),
        ("output_norm.bias", Shared.OUTPUT),
        ("blk.0.attn_q.weight", 0),
        ("blk.17.ffn_up_exps.weight", 17),
        ("blk.61.nextn.eh_proj.weight", 61),
        ("blk.x.attn_q.weight", Shared.METADATA),
    ],
)
def test_a_name_says_who_owns_a_tensor(name: str, owner: Owner) -> None:
    """The rule of the format, the same for every architecture."""
    assert owner_of(TensorInfo(name, (32,), 0, 0, 128)) == owner
    assert words(owner) in (f"shared {owner}", f"layer {owner}")


@given(st.sampled_from(KINDS), st.sets(st.integers(1, 15)))
def test_a_division_owns_everything_once(packages: Packages, kind: str, cuts: set[int]) -> None:
    """Whatever the cuts: each layer and each end has one stage; the metadata part goes to all, tied embeddings to both ends."""
    package = packages(kind)
    trunk = trunk_layers(package)
    edges = sorted({0, trunk, *(cut for cut in cuts if cut < trunk)})
    stages = [stage_parts(package, start, end) for start, end in itertools.pairwise(edges)]
    owned = Counter(part.owner for stage in stages for part in stage.parts)
    shared = {
        Shared.METADATA: len(stages),
        Shared.OUTPUT: 1,
        Shared.EMBEDDINGS: 1 + (is_tied(package) and len(stages) > 1),
    }
    assert owned == Counter(shared) + Counter(range(package.layer_count))
    assert [stage.first for stage in stages] == [index == 0 for index in range(len(stages))]
    assert [stage.last for stage in stages] == [index == len(stages) - 1 for index in range(len(stages))]
    assert sum(stage.size for stage in stages) >= sum(part.artifact_bytes for part in package.parts.values())


def test_parts_come_in_the_order_of_the_format(packages: Packages) -> None:
    """Metadata first, since its keys are those of the stage; then embeddings, layers, output."""
    package = packages("gemma")
    assert [part.owner for part in stage_parts(package, 0, 8).parts] == [*list(Shared)[:2], *range(8), Shared.OUTPUT]
    assert [part.owner for part in stage_parts(package, 3, 5).parts] == [Shared.METADATA, 3, 4]
    last = stage_parts(package, 6, 8)
    assert [part.owner for part in last.parts] == [Shared.METADATA, Shared.EMBEDDINGS, 6, 7, Shared.OUTPUT]
    assert last.tied


def test_a_matrix_of_its_own_leaves_the_embeddings_to_the_first_stage(packages: Packages) -> None:
    """They are large: nobody fetches them who does not read them."""
    last = stage_parts(packages("qwen3"), 6, 8)
    assert not last.tied
    assert Shared.EMBEDDINGS not in last.owners


def test_a_prediction_head_is_never_cut_off(predicting: Package) -> None:
    """It goes with the last layer of the trunk, whichever way its end is named; a stage of it alone does not exist."""
    assert (trunk_layers(predicting), predicting.layer_count) == (8, 9)
    for end in (8, 9):
        last = stage_parts(predicting, 5, end)
        assert (last.end, list(last.layers), last.last) == (8, [5, 6, 7, 8], True)
    assert list(stage_parts(predicting, 3, 5).layers) == [3, 4]
    for start, end in ((8, 9), (8, 8)):
        with pytest.raises(
            StageInvalid, match=r"prediction \(MTP\) head, which is never cut off: it goes with layer 7"
        ):
            stage_parts(predicting, start, end)


@pytest.mark.parametrize(("start", "end"), [(0, 9), (8, 8), (5, 3), (-1, 3), (8, 9), (3, 3)])
def test_a_range_that_is_no_stage_is_refused(packages: Packages, start: int, end: int) -> None:
    """With the layers that there are."""
    with pytest.raises(StageInvalid, match="the model has 8 layers"):
        stage_parts(packages("qwen3"), start, end)


@pytest.mark.parametrize(
    "text", ["", "3", "3-5", "3:3", "5:3", "a:b", "0:99999", "-1:3", "0 : 3", "0:3:5", "\u0663:\u0665"]
)
def test_what_is_no_range_is_refused(text: str) -> None:
    """And an example is given."""
    with pytest.raises(StageInvalid, match="give START:END"):
        parse_range(text)


def test_a_manifest_with_other_layers_than_its_model_has_no_stages(copies: Packages) -> None:
    """Nobody guesses which one is right."""
    package = copies("qwen3")
    edit_manifest(package, lambda values: values["layers"].pop() and values.update(layer_count=7))
    with pytest.raises(StageInvalid, match="block_count of its metadata part is 8"):
        stage_parts(reread(package), 0, 3)
