"""The binding follows a build whose structs lie elsewhere, and refuses what has no certain mapping, before any model."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.binding.ggml import FUNCTIONS as GGML_FUNCTIONS
from agent.binding.layout import Field, Layout, Struct
from agent.binding.load import USED
from agent.binding.structs import follow, structure_of
from agent.binding.used import FIELDS, FUNCTIONS
from agent.build.abi import check_abi
from agent.build.headers import layout_of_checkout
from agent.build.record import LIBRARIES, RECORD
from agent.errors import LayoutInvalid
from tests.agent.build.kit import LLAMA_H, skippy, write_checkout

llama: Any = pytest.importorskip("llama_cpp.llama_cpp")
AGENT = Path(__file__).parents[3] / "agent"
# what runs on libraries under test; `vitals` looks at recipes on the binding's own
SOURCES = [
    path
    for folder in ("engine", "twin", "faults", "lanes", "runner", "binding")
    for path in (AGENT / folder).rglob("*.py")
    if path.name != "vitals.py"
]


def with_struct(layout: Layout, struct: Struct) -> Layout:
    """`layout` with another struct of that name."""
    return dataclasses.replace(layout, structs={**layout.structs, struct.name: struct})


def with_fresh_field(struct: Struct, place: int) -> Struct:
    """`struct` with 8 more bytes before its field number `place`."""
    first = struct.fields[place]
    fresh = Field(name="fresh", offset=first.offset, size=8, align=8, kind="int")
    moved = [dataclasses.replace(field, offset=field.offset + 8) for field in struct.fields[place:]]
    return dataclasses.replace(struct, size=struct.size + 8, fields=(*struct.fields[:place], fresh, *moved))


def test_every_function_that_is_called_is_required() -> None:
    """The list of functions without which libraries are refused is the list of those that the sources call."""
    called = {
        name for path in SOURCES for name in re.findall(r"\.((?:llama|ggml|gguf)_\w+)\(", path.read_text("utf-8"))
    }
    kind = type(llama.llama_decode)
    assert {name for name in called if isinstance(getattr(llama, name, None), kind)} == {*FUNCTIONS, "llama_version"}
    assert {name for name in called if not name.startswith("llama_")} <= {
        *(*GGML_FUNCTIONS, "ggml_backend_sched_eval_callback")
    }
    assert FUNCTIONS | GGML_FUNCTIONS.keys() == USED


def test_every_field_that_is_set_is_required() -> None:
    """The lists of fields without which a struct is not followed hold all fields that the sources set."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES)
    fields = set(re.findall(r"\bparams\.(\w+)(?= = | =\n|, params\.)", text))
    known = FIELDS["llama_model_params"] | FIELDS["llama_context_params"]
    assert {"n_gpu_layers", "cb_eval", "n_threads_batch"} <= fields
    declared = {
        name for struct in (llama.llama_model_params, llama.llama_context_params) for name, *_ in struct._fields_
    }
    assert fields & declared <= known


def test_a_lost_field_that_nobody_uses_is_left_out(checkout: Path) -> None:
    """An older struct without a field is followed; to set that field is an error, not a new attribute."""
    root = write_checkout(checkout.parent / "older", llama_h=LLAMA_H.replace("    enum llama_choice lazy_mode;\n", ""))
    struct = layout_of_checkout(root).structs["llama_model_params"]
    made: Any = structure_of(struct, llama.llama_model_params, used=FIELDS["llama_model_params"])
    params = made(n_gpu_layers=3)
    assert (made.main_gpu.offset, params.n_gpu_layers) == (28, 3)
    with pytest.raises(AttributeError):
        params.lazy_mode = 1


@pytest.mark.parametrize(
    ("name", "field"),
    [
        (name, field)
        for name in ("llama_model_params", "llama_context_params", "llama_batch")
        for field in sorted(FIELDS[name])
    ],
)
def test_a_lost_field_that_is_used_is_refused(checkout: Path, name: str, field: str) -> None:
    """Each used field alone: a struct without it is not followed, and the message names struct and field."""
    layout = layout_of_checkout(checkout)
    struct = layout.structs[name]
    lost = dataclasses.replace(struct, fields=tuple(entry for entry in struct.fields if entry.name != field))
    with pytest.raises(LayoutInvalid, match=f"{name}: the field {field}, which is used"):
        follow(llama, with_struct(layout, lost))


def test_what_nothing_fills_is_refused(checkout: Path) -> None:
    """A new field of llama_batch, which no function of llama.cpp fills for us, has no known value."""
    layout = layout_of_checkout(checkout)
    with pytest.raises(LayoutInvalid, match="nothing fills the field fresh"):
        follow(llama, with_struct(layout, with_fresh_field(layout.structs["llama_batch"], 2)))


def test_layouts_of_other_machines_and_without_a_struct_are_refused(checkout: Path) -> None:
    """Nothing is followed across machines, or where a struct is not recorded."""
    layout = layout_of_checkout(checkout)
    with pytest.raises(LayoutInvalid, match="is of mips"):
        follow(llama, dataclasses.replace(layout, machine="mips"))
    fewer = {name: struct for name, struct in layout.structs.items() if name != "llama_batch"}
    with pytest.raises(LayoutInvalid, match="has no struct llama_batch"):
        follow(llama, dataclasses.replace(layout, structs=fewer))


def place_beside(tmp_path: Path, text: str) -> Path:
    """The binding's own libraries in a folder beside a record that says `text`."""
    own = Path(llama._lib._name).parent
    (tmp_path / RECORD).write_text(text, encoding="utf-8")
    (tmp_path / LIBRARIES).symlink_to(own)
    return tmp_path / LIBRARIES


TENSOR = """
import json
from agent.binding.ggml import GgmlTensor
from agent.binding.load import open_binding
binding = open_binding()
print(json.dumps([binding.followed, GgmlTensor.op.offset, GgmlTensor.name.offset, GgmlTensor.name.size]))
"""


def test_the_tensor_is_read_where_the_build_has_it(checkout: Path, tmp_path: Path) -> None:
    """A field in the middle of ggml_tensor: all behind it are read 8 bytes later, in every child that loads the build."""
    layout = layout_of_checkout(checkout)
    moved = with_struct(layout, with_fresh_field(layout.structs["ggml_tensor"], 4))
    found: list[Any] = []
    for record in (layout, moved):
        folder = tmp_path / str(len(found))
        folder.mkdir()
        libraries = place_beside(folder, json.dumps({"layout": record.to_json()}))
        done = subprocess.run(
            [sys.executable, "-c", TENSOR],
            env={"PATH": "", "LLAMA_CPP_LIB_PATH": str(libraries)},
            capture_output=True,
            text=True,
            check=True,
        )
        found.append(json.loads(done.stdout))
    (plain, op, name, size), (followed, op_later, name_later, size_later) = found
    assert (plain, followed) == ([], ["ggml_tensor"])
    assert (op_later - op, name_later - name, size_later - size) == (8, 8, 0)


def test_a_record_that_lies_is_found(checkout: Path, tmp_path: Path) -> None:
    """Libraries beside a record of other headers: their defaults come back wrong, so they are refused all the same."""
    root = write_checkout(
        checkout.parent / "other",
        llama_h=LLAMA_H.replace("    int32_t main_gpu;", "    void * x;\n    int32_t main_gpu;"),
    )
    layout = layout_of_checkout(root)
    report = check_abi(actual=layout, libraries=place_beside(tmp_path, json.dumps({"layout": layout.to_json()})))
    errors = {finding.id for finding in report.findings if finding.severity == "error"}
    assert (report.ok, report.followed, errors) == (False, ("llama_model_params",), {"AB010"})


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"layout": 3}', "[" * 100_000])
def test_a_record_without_a_layout_is_refused(tmp_path: Path, text: str) -> None:
    """No guess is made where the record beside the libraries cannot be read."""
    report = check_abi(actual=None, libraries=place_beside(tmp_path, text))
    assert [finding.id for finding in report.findings] == ["AB013"]


def test_what_cannot_be_followed_is_refused_by_certify(checkout: Path, tmp_path: Path) -> None:
    """`certify --build` names struct and field, opens no model and leaves no receipt; `abi` says the same."""
    from tests.agent.build.kit import pack_installed

    root = write_checkout(
        checkout.parent / "wide", llama_h=LLAMA_H.replace("    uint32_t yarn_orig_ctx;", "    uint64_t yarn_orig_ctx;")
    )
    archive = pack_installed(tmp_path, layout_of_checkout(root))
    receipts = tmp_path / "receipts"
    ran = skippy("certify", "qwen3-dense", "--twin", "--build", archive, "--receipts", receipts)
    assert (ran.code, receipts.exists()) == (2, False)
    assert "AB013" in ran.err or "AB006" in ran.err
    assert "yarn_orig_ctx" in ran.err
    assert skippy("abi", "--build", archive).code == 1


def test_libraries_without_a_used_function_are_refused(checkout: Path, tmp_path: Path) -> None:
    """Libraries that load and lack nearly everything: all that is used is named, nobody calls into nothing."""
    source = checkout / "src/llama.c"
    source.write_text(
        source.read_text(encoding="utf-8") + "int llama_max_devices(void) { return 1; }\n", encoding="utf-8"
    )
    assert skippy("build", "--llama-src", checkout, "--backend", "cpu", "-o", tmp_path / "toy").code == 0
    report = check_abi(actual=None, libraries=tmp_path / "toy" / LIBRARIES)
    assert [finding.id for finding in report.findings] == ["AB012"]
    assert "llama_decode" in report.findings[0].message
