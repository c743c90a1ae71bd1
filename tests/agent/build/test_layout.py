"""Struct layout of headers, of the binding, and what differs between them; with the compiler of this machine."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.binding.defaults import KNOWN_DEFAULTS
from agent.binding.layout import Layout, machine_name
from agent.binding.structs import follow, struct_of, structure_of
from agent.binding.used import STRUCTS
from agent.build.abi import check_abi
from agent.build.assertions import assertions_of
from agent.build.compare import compare_layouts
from agent.build.compiler import check_source
from agent.build.headers import (
    LLAMA_HEADERS,
    layout_of_checkout,
    layout_of_headers,
    llama_includes,
)
from agent.build.readback import check_defaults, read_back
from agent.errors import EngineUnavailable, HeadersUnreadable, LayoutInvalid
from tests.agent.build.kit import LLAMA_H, skippy, write_checkout

pytest.importorskip("llama_cpp")

LINES = {
    "moved": ("    enum llama_choice lazy_mode;\n", ""),
    "inserted": ("    int32_t main_gpu;\n", "    int32_t fresh;\n    int32_t main_gpu;\n"),
    "appended": ("    bool load_mtp;\n", "    bool load_mtp;\n    void * fresh;\n"),
    "renamed": ("    bool no_perf;\n", "    bool no_timing;\n"),
    "widened": ("    uint32_t yarn_orig_ctx;\n", "    uint64_t yarn_orig_ctx;\n"),
    "other kind": ("    float defrag_thold;\n", "    int32_t defrag_thold;\n"),
    "swapped": ("    bool embeddings;\n    bool offload_kqv;\n", "    bool offload_kqv;\n    bool embeddings;\n"),
}


def changed(tmp_path: Path, name: str) -> Path:
    """A checkout with one line of a struct changed."""
    old, new = LINES[name]
    assert old in LLAMA_H
    return write_checkout(tmp_path / name, llama_h=LLAMA_H.replace(old, new))


def test_binding_agrees_with_headers_of_its_pin(checkout: Path) -> None:
    """Every field of every struct of the engine is compared, and none differs."""
    compared = compare_layouts(read_back(None).layout, layout_of_checkout(checkout))
    assert compared.findings == ()
    assert compared.structs == len(STRUCTS)
    assert compared.fields == 17 + 37 + 7 + 14


@pytest.mark.parametrize("name", LINES)
def test_every_change_of_a_struct_is_an_error(tmp_path: Path, name: str) -> None:
    """A field that was moved, added, renamed, widened, retyped or swapped is found."""
    report = check_abi(actual=layout_of_checkout(changed(tmp_path, name)), libraries=None)
    assert not report.ok


def test_a_field_in_the_middle_is_named(tmp_path: Path) -> None:
    """The message says which field was inserted, behind which one, and from where on all are shifted."""
    root = changed(tmp_path, "inserted")
    messages = [str(finding) for finding in check_abi(actual=layout_of_checkout(root), libraries=None).findings]
    assert any("AB003" in text and "fresh" in text and "in the middle, after lazy_mode" in text for text in messages)
    assert any("AB005" in text and "from field main_gpu on" in text and "4 bytes behind" in text for text in messages)


def test_assertions_compile_on_the_same_headers_and_nowhere_else(checkout: Path, tmp_path: Path) -> None:
    """The C file holds for its own headers; for changed ones the compiler names the field."""
    source = assertions_of(layout_of_checkout(checkout), LLAMA_HEADERS)
    assert check_source(source, llama_includes(checkout)).ok
    other = check_source(source, llama_includes(changed(tmp_path, "inserted")))
    assert not other.ok
    assert "llama_model_params.main_gpu: offset is not 32" in other.words


def test_layout_survives_json(checkout: Path) -> None:
    """A layout that is written and read is the same."""
    layout = layout_of_checkout(checkout)
    assert Layout.from_json(json.loads(json.dumps(layout.to_json()))) == layout


@pytest.mark.parametrize(
    "damage",
    [
        {"structs": 3},
        {"structs": [{"name": "a", "size": 4, "align": 4}]},
        {"structs": [{"name": "a", "size": -4, "align": 4, "fields": []}]},
        {"structs": [{"name": "a", "size": True, "align": 4, "fields": []}]},
        {
            "structs": [
                {
                    "name": "a",
                    "size": 4,
                    "align": 4,
                    "fields": [{"name": "x", "offset": 2, "size": 4, "align": 4, "kind": "int"}],
                }
            ]
        },
    ],
)
def test_damaged_layout_is_refused(damage: dict[str, object]) -> None:
    """A recorded layout that no compiler makes is bad input."""
    with pytest.raises(LayoutInvalid):
        Layout.from_json({"source": "x", "machine": machine_name(), **damage})


def test_layouts_of_two_machines_are_not_compared(checkout: Path) -> None:
    """A layout of another machine is an error, even if all numbers agree."""
    layout = layout_of_checkout(checkout)
    other = dataclasses.replace(layout, machine="mips-32bit-big")
    assert [finding.id for finding in compare_layouts(layout, other).errors] == ["AB001"]


@pytest.mark.parametrize("name", STRUCTS)
def test_structure_of_a_layout_has_that_layout(checkout: Path, name: str) -> None:
    """A ctypes structure made from a layout has its offsets and sizes, so that a binding can follow a pin."""
    struct = layout_of_checkout(checkout).structs[name]
    made = struct_of(name, structure_of(struct))
    places = {field.name: (field.offset, field.size) for field in made.fields}
    assert all(places[field.name] == (field.offset, field.size) for field in struct.fields)
    assert made.size == struct.size


def test_structure_follows_a_pin_with_another_layout(tmp_path: Path) -> None:
    """Values written through a followed structure land where the changed headers have them."""
    struct = layout_of_checkout(changed(tmp_path, "inserted")).structs["llama_model_params"]
    params = structure_of(struct)()
    params.main_gpu = 7
    field = struct.field("main_gpu")
    assert field is not None
    assert bytes(params)[field.offset : field.offset + 4] == (7).to_bytes(4, "little")


@pytest.mark.skipif(
    "SKIPPY_LLAMA_SRC" not in os.environ, reason="SKIPPY_LLAMA_SRC names no llama.cpp of the binding's pin"
)
def test_a_whole_llama_cpp_agrees_with_the_binding() -> None:
    """Every struct of the real headers is read and explained, and the binding's agree with them."""
    layout = layout_of_checkout(Path(os.environ["SKIPPY_LLAMA_SRC"]))
    compared = compare_layouts(read_back(None).layout, layout)
    assert compared.errors == ()
    assert compared.structs >= 20
    assert compared.fields >= 150


FOLLOW = """
import ctypes, json, sys
import llama_cpp.llama_cpp as llama
from pathlib import Path
from agent.binding.defaults import read_defaults, wrong_defaults
from agent.binding.structs import follow
from agent.build.headers import layout_of_checkout

# the binding of the release before: it lacks a field in the middle
old = llama.llama_model_params
fields = [pair for pair in old._fields_ if pair[0] != "lazy_mode"]
shifted = type("llama_model_params", (ctypes.Structure,), {"_fields_": fields})
llama.llama_model_params = shifted
for value in vars(llama).values():
    if isinstance(value, ctypes._CFuncPtr):
        value.restype = shifted if value.restype is old else value.restype
        value.argtypes = [shifted if kind is old else kind for kind in value.argtypes or ()]
before = len(list(wrong_defaults(read_defaults(llama))))
layout = layout_of_checkout(Path(sys.argv[1]))
names = follow(llama, layout)
params = llama.llama_model_default_params()
params.progress_callback = llama.llama_progress_callback(lambda progress, data: True)
params.vocab_only = True
model = llama.llama_model_load_from_file(sys.argv[2].encode(), params)
print(json.dumps([before, names, len(list(wrong_defaults(read_defaults(llama)))), params.lazy_mode, bool(model)]))
"""


def test_a_binding_follows_a_pin_whose_struct_moved(checkout: Path) -> None:
    """The real library, read by a binding that lacks a field: wrong before, right and able to load a model once it follows."""
    from agent.commands.folders import twin_folder
    from agent.twin.build import build_twin
    from agent.twin.catalog import recipe_for

    model = build_twin(recipe_for("qwen3"), twin_folder())
    command = [sys.executable, "-c", FOLLOW, str(checkout), str(model)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    before, names, after, lazy_mode, loaded = json.loads(done.stdout.splitlines()[-1])
    assert before > 0
    assert (names, after, lazy_mode, loaded) == (["llama_model_params"], 0, 1, True)


@pytest.mark.parametrize("name", ["renamed", "widened", "other kind"])
def test_what_cannot_be_followed_is_refused(tmp_path: Path, name: str) -> None:
    """A field that is gone, or has another size or kind, has no certain mapping."""
    import llama_cpp.llama_cpp as llama

    layout = layout_of_checkout(changed(tmp_path, name))
    with pytest.raises(LayoutInvalid):
        follow(llama, layout)
    assert check_defaults(read_back(None).values)[1] == ()


def test_readback_agrees_on_the_bindings_own_libraries() -> None:
    """All known defaults come back from the libraries that the binding was made for."""
    count, findings = check_defaults(read_back(None).values)
    assert findings == ()
    assert count == sum(map(len, KNOWN_DEFAULTS.values()))


@pytest.mark.parametrize(("struct", "field"), [(s, f) for s, known in KNOWN_DEFAULTS.items() for f in known])
def test_each_default_that_differs_is_found(struct: str, field: str) -> None:
    """No known default is for show: each alone, when it comes back otherwise, is an error."""
    values = {name: dict(known) for name, known in KNOWN_DEFAULTS.items()}
    values[struct][field] = "a pointer" if values[struct][field] is None else 77
    assert [finding.id for finding in check_defaults(values)[1]] == ["AB010"]


def test_a_shifted_binding_reads_other_defaults() -> None:
    """The real library read through a structure that lacks one field in the middle shows wrong defaults.

    This is what the binding of the release before meets: `lazy_mode` was inserted between them.
    """
    import llama_cpp.llama_cpp as llama

    fields = [pair for pair in llama.llama_model_params._fields_ if pair[0] != "lazy_mode"]
    shifted: Any = type("Shifted", (ctypes.Structure,), {"_fields_": fields})
    raw = bytes(llama.llama_model_default_params())
    params = shifted.from_buffer_copy(raw[: ctypes.sizeof(shifted)])
    count, findings = check_defaults({"llama_model_params": {"main_gpu": params.main_gpu}})
    assert (count, [finding.id for finding in findings]) == (1, ["AB010"])


def test_libraries_that_do_not_load_are_a_finding(tmp_path: Path) -> None:
    """An empty folder, or libraries without the symbols, is AB011 and not a traceback."""
    report = check_abi(actual=None, libraries=tmp_path)
    assert [finding.id for finding in report.findings] == ["AB011"]
    assert not report.ok
    with pytest.raises(EngineUnavailable):
        read_back(tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("struct a { int x : 3; };", "bit field"),
        ("struct a { int x", "not closed"),
        ("#include <no-such-file.h>", "do not compile"),
        ("struct a { int ; };", "misread"),
    ],
)
def test_headers_that_cannot_be_laid_out_are_refused(tmp_path: Path, text: str, words: str) -> None:
    """A member that is not understood is an error; nothing is skipped in silence."""
    (tmp_path / "a.h").write_text(text + "\n", encoding="utf-8")
    with pytest.raises(HeadersUnreadable, match=words):
        layout_of_headers(["a.h"], [tmp_path], source="a.h")


def test_every_form_of_a_member_is_read(tmp_path: Path) -> None:
    """Several names, arrays, function pointers, nested and anonymous aggregates, attributes and typedefs."""
    (tmp_path / "a.h").write_text(
        """
        #include <stdint.h>
        typedef struct { uint8_t a, *b, c[3][2]; } first;
        struct second {
            int (*call)(int a, struct second * b), plain;
            void (*table[4])(void);
            struct { int inner; union { int64_t wide; char text[12]; }; };
            struct { char q; } named[2];
            enum { ONE, TWO } choice;
            int aligned_one __attribute__((aligned(__alignof__(long long))));
            const first * volatile where;
        };
        """,
        encoding="utf-8",
    )
    layout = layout_of_headers(["a.h"], [tmp_path], source="a.h")
    assert [field.name for field in layout.structs["first"].fields] == ["a", "b", "c"]
    assert [field.name for field in layout.structs["second"].fields] == [
        *("call", "plain", "table", "inner", "wide", "text", "named", "choice", "aligned_one", "where")
    ]


def test_command_says_pass_and_writes_what_it_asserted(checkout: Path, tmp_path: Path) -> None:
    """`abi --llama-src` passes on the binding's own pin and leaves assertions, layout and report."""
    ran = skippy("abi", "--llama-src", checkout, "--output", tmp_path / "out", "--json")
    assert (ran.code, ran.json["status"], ran.json["lane"]) == (0, "pass", "abi")
    assert ran.json["comparisons"] > 100
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *("llama-assertions.c", "llama-layout.json", "report.json")
    }


def test_command_fails_with_reason_and_next_step(tmp_path: Path) -> None:
    """A moved struct ends with exit code 1, and the output has what, why and fix."""
    ran = skippy("abi", "--llama-src", changed(tmp_path, "inserted"))
    assert ran.code == 1
    assert "AB003" in ran.out
    assert "why:" in ran.out
    assert "fix:" in ran.out


@pytest.mark.parametrize(
    "arguments",
    [
        ("--llama-src", "nowhere"),
        ("--struct", "a"),
        ("--header", "a.h"),
        ("--rust", "nowhere.rs"),
        ("--build", "nowhere.tar"),
    ],
)
def test_bad_input_is_refused_without_traceback(arguments: tuple[str, ...]) -> None:
    """What is not there, or does not go together, is exit code 2 and one message."""
    ran = skippy("abi", *arguments)
    assert ran.code == 2
    assert "Traceback" not in ran.err
    assert ran.err.startswith("error: ")
