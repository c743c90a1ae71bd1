"""Each rule catches the fault it is there for, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from matrixgen.catalogue import CATALOGUE
from matrixgen.errors import ManifestInvalid
from matrixgen.manifest import check_manifest, load_manifest

Edit = Callable[[str, Callable[[Any], Any]], Path]


def row(data: Any, name: str) -> Any:
    """The row called `name`."""
    return next(entry for entry in data["families"] if entry["family"] == name)


def _duplicate(data: Any) -> None:
    data["families"].append(dict(row(data, "mamba")))


def _chatglm(data: Any) -> None:
    row(data, "glm47-flash")["arch"] = "chatglm"


def _silent_tombstone(data: Any) -> None:
    row(data, "gpt2")["reason"] = " "


def _tombstone_without_arch(data: Any) -> None:
    row(data, "gpt2")["arch"] = None


def _case(data: Any) -> None:
    row(data, "mamba")["artifact"]["repo"] = row(data, "gemma2")["artifact"]["repo"].upper()


def _no_projector(data: Any) -> None:
    row(data, "qwen2vl")["projector"] = None


def _resident_recurrent(data: Any) -> None:
    row(data, "kimi-linear")["cache"] = "ResidentKv"


def _draft_model_in_a_tier(data: Any) -> None:
    data["families"][10]["arch"] = "eagle3"


def _helper_in_a_tier(data: Any) -> None:
    row(data, "delta-net-base")["tier"] = 1


def _empty_package(data: Any) -> None:
    row(data, "exaone-moe")["artifact"] = None


def _projector_as_model(data: Any) -> None:
    row(data, "qwen2vl")["artifact"] = row(data, "qwen2vl")["projector"]


def _two_cases_of_a_file(data: Any) -> None:
    files = row(data, "mamba")["artifact"]["files"]
    files.update({path.upper(): facts for path, facts in list(files.items())})


def _missing_shard(data: Any) -> None:
    facts = {"size": 1, "sha256": "0" * 64}
    row(data, "mamba")["artifact"]["files"] = {"m-00001-of-00003.gguf": facts, "m-00003-of-00003.gguf": facts}


def _huge_shard_count(data: Any) -> None:
    row(data, "mamba")["artifact"]["files"] = {"m-00001-of-99999.gguf": {"size": 1, "sha256": "0" * 64}}


def _patch_order(data: Any) -> None:
    data["patches"].reverse()


def _patch_twice(data: Any) -> None:
    data["patches"].append(dict(data["patches"][-1]))


def _unknown_lane(data: Any) -> None:
    data["events"]["nightly"]["1"]["lanes"]["guess"] = {}


def _reserved_lane(data: Any) -> None:
    data["lanes"]["abi"] = {"shapes": ["dense"], "params": {}}


def _unknown_parameter(data: Any) -> None:
    data["events"]["nightly"]["1"]["lanes"]["inspect"] = {"repeats": 3}


def _refuse_elsewhere(data: Any) -> None:
    data["events"]["nightly"]["1"]["lanes"]["refuse"] = {}


def _tombstone_tested(data: Any) -> None:
    data["events"]["llama-bump"]["3"]["lanes"] = {"inspect": {}}


def _unserved_backend(data: Any) -> None:
    data["events"]["nightly"]["1"]["backends"] = ["cpu", "rocm"]


def _fork_weights(data: Any) -> None:
    data["events"]["pull-request"]["1"]["subject"] = "weights"


def _fork_gpu(data: Any) -> None:
    data["events"]["pull-request"]["1"]["backends"] = ["cuda"]


def _same_class_twice(data: Any) -> None:
    data["runners"].append(dict(data["runners"][0]))


def _hidden_self_hosted(data: Any) -> None:
    data["runners"][1]["self_hosted"] = False


@pytest.mark.parametrize(
    ("file", "change", "id_", "pointer"),
    [
        ("families", _duplicate, "MG011", "/families/19/family"),
        ("families", _chatglm, "MG012", "/families/8/arch"),
        ("families", _silent_tombstone, "MG013", "/families/9/reason"),
        ("families", _tombstone_without_arch, "MG013", "/families/9/arch"),
        ("families", _case, "MG014", "/families/11/artifact/repo"),
        ("families", _no_projector, "MG015", "/families/14/projector"),
        ("families", _resident_recurrent, "MG016", "/families/10/cache"),
        ("families", _helper_in_a_tier, "MG017", "/families/3/tier"),
        ("families", _draft_model_in_a_tier, "MG017", "/families/10/tier"),
        ("families", _empty_package, "MG018", "/families/4/package"),
        ("families", _projector_as_model, "MG019", "/families/14/artifact/files"),
        ("families", _two_cases_of_a_file, "MG020", "/families/11/artifact/files"),
        ("families", _missing_shard, "MG021", "/families/11/artifact/files"),
        ("families", _huge_shard_count, "MG021", "/families/11/artifact/files"),
        ("pin", _patch_order, "MG022", "/patches/1/name"),
        ("pin", _patch_twice, "MG022", "/patches/2/name"),
        ("batteries", _unknown_lane, "MG023", "/events/nightly/1/lanes/guess"),
        ("batteries", _reserved_lane, "MG023", "/lanes/abi"),
        ("batteries", _unknown_parameter, "MG024", "/events/nightly/1/lanes/inspect/repeats"),
        ("batteries", _refuse_elsewhere, "MG023", "/events/nightly/1/lanes"),
        ("batteries", _tombstone_tested, "MG023", "/events/llama-bump/3/lanes"),
        ("batteries", _unserved_backend, "MG025", "/events/nightly/1/backends/1"),
        ("batteries", _fork_weights, "MG026", "/events/pull-request/1/subject"),
        ("batteries", _fork_gpu, "MG026", "/events/pull-request/1/backends/0"),
        ("runners", _same_class_twice, "MG027", "/runners/6/name"),
        ("runners", _hidden_self_hosted, "MG028", "/runners/1/labels"),
    ],
)
def test_fault_is_found(edit: Edit, file: str, change: Callable[[Any], Any], id_: str, pointer: str) -> None:
    """The fault gives its id at its pointer, and the manifest cannot be loaded."""
    root = edit(file, change)
    findings, manifest = check_manifest(root)
    errors = [finding for finding in findings if finding.severity == "error"]
    assert (id_, pointer) in [(finding.id, finding.pointer) for finding in errors]
    assert {finding.id for finding in errors} <= {id_, "MG019"}
    assert manifest is None
    with pytest.raises(ManifestInvalid) as caught:
        load_manifest(root)
    assert set(errors) <= set(caught.value.findings)


def test_every_reported_id_is_in_the_catalogue() -> None:
    """An id that a user meets is explained, and one that is explained is reported somewhere."""
    paths = (Path(__file__).parents[2] / "matrixgen").glob("*.py")
    text = "".join(path.read_text(encoding="utf-8") for path in paths if path.name != "catalogue.py")
    reported = set(re.findall(r'"(MG\d{3})"', text))
    assert reported == set(CATALOGUE)


def test_unpinned_rows_are_warnings(folder: Path) -> None:
    """A row of a tier that is not pinned loads, and says so."""
    findings, manifest = check_manifest(folder)
    assert manifest is not None
    assert {finding.id for finding in findings} == {"MG030"}
    assert {finding.message.split(":")[0] for finding in findings} == {"mamba2", "olmo"}


def test_all_files_are_checked_at_once(edit: Edit, folder: Path) -> None:
    """A fault in each file gives four findings in one run."""
    edit("families", lambda data: data.update(families=None))
    edit("pin", lambda data: data.update(commit=None))
    edit("batteries", lambda data: data.update(lanes=None))
    (folder / "runners.json").unlink()
    findings, manifest = check_manifest(folder)
    assert manifest is None
    assert {finding.file for finding in findings} == {"families.json", "pin.json", "batteries.json", "runners.json"}


def test_shipped_manifest_has_no_error() -> None:
    """What this repository ships can be loaded."""
    findings, manifest = check_manifest(Path(__file__).parents[2] / "manifests")
    assert manifest is not None
    assert not [finding for finding in findings if finding.severity == "error"]
