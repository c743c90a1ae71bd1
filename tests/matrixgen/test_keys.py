"""Keys: bounded, without commas, never a prefix of one another, and changed by everything that matters."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrixgen.errors import InvalidValue
from matrixgen.family import FileDigest
from matrixgen.keys import TERMINATOR, build_key, make_key, model_key, plan_keys
from matrixgen.limits import MAX_KEY, check_artifact_name, check_key
from matrixgen.manifest import Manifest
from matrixgen.pin import Patch
from matrixgen.plan import build_plan

LABELS = st.text(alphabet="ab.-_0", min_size=1, max_size=700)
PARTS = st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5)), max_size=4)


def prefix_pairs(keys: list[str]) -> list[tuple[str, str]]:
    """Pairs where one key begins with another. Neighbours in sorted order are enough to find one."""
    return [(a, b) for a, b in itertools.pairwise(sorted(set(keys))) if b.startswith(a)]


def test_no_key_of_any_family_is_a_prefix(live: Manifest) -> None:
    """A21: over every family, every system and every build, no key begins with another."""
    keys = [build_key(live.pin, runner, prefix="mesh-llm").text for runner in live.runners]
    for family in live.families:
        files = family.weight_files or (FileDigest(path="x", size=1, sha256="0" * 64),)
        keys += [
            model_key(family.family, files, os=os, cache_version=live.pin.cache_version, prefix="mesh-llm").text
            for os in ("linux", "macos", "windows")
        ]
    assert len(set(keys)) > 3 * len(live.families)
    assert prefix_pairs(keys) == []
    for key in keys:
        check_key(key)


def test_prefix_pairs_finds_what_it_looks_for() -> None:
    """The check above would see a prefix."""
    assert prefix_pairs(["mamba", "zzz", "mamba2"]) == [("mamba", "mamba2")]


@given(st.lists(st.tuples(LABELS, PARTS), min_size=2, max_size=6))
def test_keys_are_bounded_and_prefix_free(entries: list[tuple[str, list[tuple[str, str]]]]) -> None:
    """A20, A21: for any labels and parts."""
    keys = [make_key(label, parts).text for label, parts in entries]
    assert all(0 < len(key) <= MAX_KEY and "," not in key for key in keys)
    assert prefix_pairs(keys) == []


@given(PARTS, PARTS)
def test_different_parts_give_different_keys(left: list[tuple[str, str]], right: list[tuple[str, str]]) -> None:
    """Parts cannot run into one another."""
    assert (make_key("k", left).text == make_key("k", right).text) == (left == right)


@pytest.mark.parametrize("length", [511, 512, 513, 2000])
def test_long_labels_are_cut_and_marked(length: int) -> None:
    """A20: two labels that differ only after the cut stay apart."""
    first, second = (make_key("a" * (length - 1) + end, []).text for end in "xy")
    assert len(first) <= MAX_KEY
    assert first != second


@pytest.mark.parametrize("label", ["", "a,b", "a/b", "a:b", "a~", "a b", "é", "a\n"])
def test_labels_hold_safe_characters_only(label: str) -> None:
    """A18: what a cache or an artifact refuses never gets into a key."""
    with pytest.raises(InvalidValue):
        make_key(label, [])


def test_build_key_holds_everything_that_changes_a_build(fixed: Manifest) -> None:
    """G14: pin, patch bytes, names, order, toolchain, cache version, binding, backend and system each change it."""
    pin, runner = fixed.pin, fixed.runners[0]
    first, second = pin.patches
    variants = [
        pin._replace(commit="1" * 40),
        pin._replace(patches=(first,)),
        pin._replace(patches=(second, first)),
        pin._replace(patches=(first, second._replace(sha256="c" * 64))),
        pin._replace(patches=(first, second._replace(name="0004-third.patch"))),
        pin._replace(patches=(first, second, Patch(name="0005-x.patch", sha256="d" * 64))),
        pin._replace(toolchain_epoch="2"),
        pin._replace(cache_version="v2"),
        pin._replace(binding=pin.binding._replace(version="0.3.35")),
    ]
    keys = [build_key(variant, runner, prefix="mesh-llm").text for variant in [pin, *variants]]
    machines = [
        runner._replace(backend="cuda"),
        runner._replace(os="macos"),
        runner._replace(arch="arm64"),
    ]
    keys += [build_key(pin, machine, prefix="mesh-llm").text for machine in machines]
    assert len(set(keys)) == len(keys)


def test_version_label_is_not_identity(fixed: Manifest) -> None:
    """G12: a build number beside the commit changes nothing."""
    other = fixed.pin._replace(version="b1")
    assert build_key(other, fixed.runners[0], prefix="mesh-llm") == build_key(
        fixed.pin, fixed.runners[0], prefix="mesh-llm"
    )


def test_builds_are_shared_by_machines_of_one_kind(fixed: Manifest) -> None:
    """Labels, memory and name of a class do not change what is built."""
    runner = fixed.runners[0]
    other = runner._replace(name="x", labels=("self-hosted",), self_hosted=True, memory_gb=999)
    assert build_key(fixed.pin, other, prefix="mesh-llm") == build_key(fixed.pin, runner, prefix="mesh-llm")


FILES = (FileDigest(path="a.gguf", size=1, sha256="0" * 64), FileDigest(path="b.gguf", size=2, sha256="1" * 64))


def test_model_key_ignores_the_order_of_files() -> None:
    """The same set of files is the same key."""
    keys = {
        model_key("x", order, os="linux", cache_version="v1", prefix="mesh-llm").text for order in (FILES, FILES[::-1])
    }
    assert len(keys) == 1


def test_model_key_changes_with_every_fact() -> None:
    """Name, size, digest, system, set and cache version each change it."""
    base = {"family": "x", "files": FILES, "os": "linux", "cache_version": "v1", "prefix": "mesh-llm"}
    variants = [
        base,
        base | {"family": "y"},
        base | {"os": "macos"},
        base | {"cache_version": "v2"},
        base | {"files": FILES[:1]},
        base | {"files": (FILES[0]._replace(size=9), FILES[1])},
        base | {"files": (FILES[0]._replace(sha256="2" * 64), FILES[1])},
        base | {"files": (FILES[0]._replace(path="c.gguf"), FILES[1])},
        base | {"prefix": "other"},
    ]
    keys = [model_key(**variant).text for variant in variants]  # type: ignore[arg-type]
    assert len(set(keys)) == len(keys)


def test_keys_extend_the_known_pattern(fixed: Manifest) -> None:
    """Model keys read like those that the product's caches already have, and end in digest and terminator."""
    key = model_key("mamba", FILES, os="linux", cache_version="v1", prefix="mesh-llm").text
    assert re.fullmatch(r"mesh-llm-linux-skippy-ci-mamba-models-[0-9a-f]{64}" + TERMINATOR, key)


def test_artifact_names_are_legal_and_distinct(live: Manifest) -> None:
    """A18, A19: one artifact for each build, with a name that GitHub takes."""
    plan = build_plan(live, event="manual-full")
    names = [build.artifact for build in plan.builds]
    assert len(set(names)) == len(names) == 3
    for name in names:
        check_artifact_name(name)


def test_why_says_what_a_key_is_made_of(fixed: Manifest) -> None:
    """The parts that are printed give exactly the key in the plan."""
    plan = build_plan(fixed, event="release")
    keys = plan_keys(fixed, plan)
    assert {key.text for _, key in keys} == {b.key for b in plan.builds} | {
        leg.model_key for leg in plan.legs if leg.model_key
    }
    for _, key in keys:
        label = key.text.rpartition("-")[0]
        assert make_key(label, key.parts) == key


def test_keys_do_not_depend_on_the_machine(fixed: Manifest) -> None:
    """A23: the same input gives these very bytes everywhere."""
    assert build_key(fixed.pin, fixed.runners[0], prefix="mesh-llm").text == (
        "mesh-llm-linux-x64-skippy-ci-build-cpu-f4d5c23807429e2d211fd3202cf70247dd7bee9065d814416473701e6bc4b831~"
    )
