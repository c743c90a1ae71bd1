"""The mirror of `#[repr(C)]` types: laid out as rustc and cc do, compared with headers, and refused where not certain."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from agent.build.rust.mirror import check_mirror, choose, compare_with_headers, problems_of, read_rust
from agent.errors import RustUnsupported
from tests.agent.build.kit import skippy

GOOD = """\
//! Types of a stage runtime; the names in strings and comments are none: #[repr(C)] struct Ghost { a: u8 }
#![allow(dead_code, non_camel_case_types, non_snake_case)]
use std::ffi::{c_char, c_int, c_void};
use std::ptr::NonNull;
/* a comment /* in a comment */ #[repr(C)] struct Ghost { a: u8 } */
pub const SKIPPY_MAX_LANES: usize = 8;
pub const LANES: usize = SKIPPY_MAX_LANES;
pub const TEXT: &str = "#[repr(C)] struct Ghost { a: u8 }";
pub const LETTER: char = '}';
pub type skippy_token = i32;
pub type skippy_progress_fn = Option<unsafe extern "C" fn(progress: f32, user: *mut c_void) -> bool>;
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub enum skippy_status { Ok = 0, Err = 1 }
#[repr(u8)]
#[derive(Clone, Copy)]
pub enum skippy_kind { A, B }
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct skippy_session_id(pub u64);
#[repr(C)]
pub struct skippy_session { _private: [u8; 0] }
/// One iteration.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct skippy_iteration_request {
    pub session: *mut skippy_session,
    pub session_id: skippy_session_id,
    pub n_tokens: u32,
    /// Tokens.
    pub tokens: *const skippy_token,
    pub lanes: [u16; LANES],
    pub progress: skippy_progress_fn,
    pub on_done: Option<unsafe extern "C" fn(*mut c_void)>,
    pub callback: extern "C" fn(c_int) -> c_int,
    pub maybe: Option<NonNull<c_char>>,
    pub verify: bool,
    pub kind: skippy_kind,
    pub temperature: f32,
    pub(crate) r#type: skippy_status,
    pub grid: [[f32; 2]; 3],
    pub pointers: [*const c_char; 2],
    pub hooks: [Option<unsafe extern "C" fn()>; 2],
    pub frame: skippy_frame,
    pub value: skippy_value,
    pub small: i8,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct skippy_frame { pub bytes: usize, pub tag: u8 }
#[repr(C)]
#[derive(Clone, Copy)]
pub union skippy_value { pub i: i64, pub b: bool, pub s: [c_char; 13] }
#[repr(C)]
pub struct skippy_pair(pub u8, pub f64);
struct NotOurs { a: Vec<u8> }
"""

HEADER = """\
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
struct skippy_session;
typedef struct skippy_frame { size_t bytes; uint8_t tag; } skippy_frame_t;
typedef union skippy_value { int64_t i; bool b; char s[13]; } skippy_value;
enum skippy_status { SKIPPY_OK, SKIPPY_ERR };
typedef struct {
    struct skippy_session * session; uint64_t session_id; uint32_t n_tokens; const int32_t * tokens;
    uint16_t lanes[8]; bool (*progress)(float, void *); void (*on_done)(void *); int (*callback)(int);
    char * maybe; bool verify; uint8_t kind; float temperature; enum skippy_status type; float grid[3][2];
    const char * pointers[2]; void (*hooks[2])(void); skippy_frame_t frame; skippy_value value; int8_t small;
} skippy_iteration_request;
"""

REFUSED = {
    r"Option<u32>": "a: Option<u32>",
    r"not repr\(C\)": "a: NotOurs",
    "a reference": "a: &'static u8",
    "pointer to \\[": "a: *const [u8]",
    "pointer to str": "a: *const str",
    "pointer to dyn": "a: *mut dyn Send",
    "attribute cfg": "#[cfg(unix)] a: u8",
    "the type String": "a: String",
    "the type u128": "a: u128",
    "the type char": "a: char",
    "the length": "a: [u8; 2 * 3]",
    "extern": "a: Option<fn(u8)>",
    "slice": "a: [u8]",
    "no size": "a: u8, b: Empty",
    "without size": "a: u8, b: ()",
    "not understood": "a: (u8, u16)",
    "Box": "a: Option<Box<u8>>",
    "variants carry data": "a: Loud",
    "no repr that fixes": "a: Quiet",
    "declared twice": "a: Twice",
    "holds itself": "a: Item",
}
SUPPORT = """\
struct NotOurs { a: u8 }
#[repr(C)] struct Empty { a: [u8; 0] }
#[repr(u8)] enum Loud { A(u8), B }
enum Quiet { A, B }
#[repr(C)] struct Twice { a: u8 }
#[repr(C)] struct Twice { a: u16 }
"""


def rust(tmp_path: Path, text: str) -> Path:
    """A Rust file."""
    path = tmp_path / "lib.rs"
    path.write_text(text, encoding="utf-8")
    return path


def test_all_types_of_a_file_are_laid_out(tmp_path: Path) -> None:
    """Structs, unions and tuple structs with every supported field; nothing in strings, comments or without repr(C)."""
    found = read_rust([rust(tmp_path, GOOD)])
    assert found.problems == ()
    assert sorted(found.layout.structs) == [
        *("skippy_frame", "skippy_iteration_request", "skippy_pair", "skippy_value")
    ]
    assert found.opaque == ("skippy_session",)


def test_the_mirror_compiles(tmp_path: Path) -> None:
    """The C compiler lays the mirror out as computed."""
    assert check_mirror(read_rust([rust(tmp_path, GOOD)])).ok


@pytest.mark.skipif(not shutil.which("rustc"), reason="no rustc on this machine")
def test_rustc_agrees(tmp_path: Path) -> None:
    """rustc itself, compiling the same file, gives every size, alignment and offset that was computed."""
    found = read_rust([rust(tmp_path, GOOD)])
    lines = []
    for struct in found.layout.structs.values():
        lines.append(f'println!("{struct.name} {{}} {{}}", size_of::<{struct.name}>(), align_of::<{struct.name}>());')
        for field in struct.fields:
            name = field.name.removeprefix("_") if struct.name == "skippy_pair" else field.name
            name = "r#type" if name == "type" else name
            lines.append(f'println!("{struct.name}.{field.name} {{}}", offset_of!({struct.name}, {name}));')
    program = tmp_path / "main.rs"
    uses = "use std::mem::{align_of, offset_of, size_of};\n"
    program.write_text(f"{GOOD}{uses}fn main() {{\n{chr(10).join(lines)}\n}}\n", encoding="utf-8")
    binary = tmp_path / "main"
    subprocess.run(["rustc", "-A", "warnings", "-o", str(binary), str(program)], check=True, capture_output=True)
    said = subprocess.run([str(binary)], check=True, capture_output=True, text=True).stdout.splitlines()
    expected = []
    for struct in found.layout.structs.values():
        expected.append(f"{struct.name} {struct.size} {struct.align}")
        expected += [f"{struct.name}.{field.name} {field.offset}" for field in struct.fields]
    assert said == expected


def test_header_of_the_same_structs_agrees(tmp_path: Path) -> None:
    """Rust and C sides that mean the same have no finding, under a tag as well as under a typedef."""
    header = tmp_path / "skippy.h"
    header.write_text(HEADER, encoding="utf-8")
    found = choose(read_rust([rust(tmp_path, GOOD)]), ["skippy_iteration_request"])
    compared, _ = compare_with_headers(found, [header], [])
    assert compared.findings == ()
    assert compared.structs == 3


@pytest.mark.parametrize(
    ("old", "new", "finding"),
    [
        ("uint32_t n_tokens;", "uint32_t n_tokens, flags;", "AB003"),  # hides in the padding: the size stays
        ("uint64_t session_id;", "uint32_t session_id;", "AB006"),
        ("uint16_t lanes[8];", "uint16_t lanes[16];", "AB006"),
        ("float temperature;", "int32_t temperature;", "AB006"),
        ("bool verify; uint8_t kind;", "uint8_t kind; bool verify;", "AB005"),
        ("int8_t small;", "", "AB004"),
        ("size_t bytes; uint8_t tag;", "uint8_t tag; size_t bytes;", "AB005"),
        ("} skippy_iteration_request;", "} skippy_other;", "AB021"),
    ],
)
def test_each_difference_to_a_header_is_named(tmp_path: Path, old: str, new: str, finding: str) -> None:
    """A field that was added (even into padding), removed, resized, retyped or reordered is found; so is an absent struct."""
    assert old in HEADER
    header = tmp_path / "skippy.h"
    header.write_text(HEADER.replace(old, new), encoding="utf-8")
    found = choose(read_rust([rust(tmp_path, GOOD)]), ["skippy_iteration_request"])
    compared, _ = compare_with_headers(found, [header], [])
    assert finding in {item.id for item in compared.errors}


@pytest.mark.parametrize("words", REFUSED)
def test_uncertain_constructs_are_named_and_never_guessed(tmp_path: Path, words: str) -> None:
    """A field without a certain layout refuses its struct, names file, line and construct, and asserts nothing."""
    path = rust(tmp_path, f"{SUPPORT}\n#[repr(C)] struct Item {{ {REFUSED[words]} }}\n")
    found = read_rust([path])
    assert "Item" not in found.layout.structs
    mine = [finding for finding in problems_of(found) if finding.message.startswith("Item: ")]
    assert [(finding.id, finding.file) for finding in mine] == [("AB020", "lib.rs")]
    assert mine[0].line > 0
    assert re.search(words, mine[0].message)


@pytest.mark.parametrize(
    "text",
    [
        "#[repr(C, packed)] struct Item { a: u8 }",
        "#[repr(C, align(16))] struct Item { a: u8 }",
        "#[repr(C)] struct Item<T> { a: T }",
        "#[cfg(unix)] #[repr(C)] struct Item { a: u8 }",
        "#[cfg_attr(unix, repr(C))] struct Item { a: u8 }",
        "macro_rules! m { () => { #[repr(C)] struct $name { a: u8 } } }",
        "#[repr(C)] enum Item { A }\n#[repr(C)] extern crate x;",
    ],
)
def test_uncertain_types_are_refused(tmp_path: Path, text: str) -> None:
    """packed, align, generics, cfg and macros give a finding, never a layout."""
    found = read_rust([rust(tmp_path, text)])
    assert not found.layout.structs
    assert [finding.id for finding in problems_of(found)] == ["AB020"]


def test_types_inside_of_bodies_are_not_taken_for_others(tmp_path: Path) -> None:
    """An associated type or a type of a function body does not stand for a type of the file that is missing."""
    text = """
    impl Iterator for X { type Item = u32; fn next(&mut self) -> Option<u32> { struct Local { a: u8 } None } }
    trait T { type Kind; const N: usize; }
    pub extern "C" fn f(a: [u8; 2]) -> impl Fn() { #[repr(C)] struct Frame { a: u8 } }
    extern "C" { fn g(a: *const u8); }
    #[repr(C)] struct A { a: Item }
    #[repr(C)] struct B { a: Frame }
    #[repr(C)] struct C { a: [u8; N] }
    #[repr(C)] struct D { a: u8 }
    """
    found = read_rust([rust(tmp_path, text)])
    assert sorted(found.layout.structs) == ["D"]
    assert [problem.item.name for problem in found.problems] == ["A", "B", "C"]


@pytest.mark.parametrize(
    "text", ["", "struct Item { a: u8 }", "#[repr(C)] struct A {", "/* open", 'const A: &str = "open;', "\0\ufffe"]
)
def test_files_without_such_types_are_bad_input(tmp_path: Path, text: str) -> None:
    """Nothing to check is an error, and text that is no Rust is refused without a traceback."""
    path = rust(tmp_path, text)
    with pytest.raises(RustUnsupported):
        read_rust([path])
    ran = skippy("abi", "--rust", path)
    assert ran.code == 2
    assert "Traceback" not in ran.err


def test_command_mirrors_compares_and_writes(tmp_path: Path) -> None:
    """`abi --rust --struct --header` passes where both sides agree, and the files it leaves compile on their own."""
    header = tmp_path / "skippy.h"
    header.write_text(HEADER, encoding="utf-8")
    arguments = ("abi", "--rust", rust(tmp_path, GOOD), "--struct", "skippy_iteration_request")
    ran = skippy(*arguments, "--header", header, "--output", tmp_path / "out", "--json")
    assert (ran.code, ran.json["status"]) == (0, "pass")
    for name in ("rust-mirror.c", "header-assertions.c"):
        command = ["cc", "-std=gnu11", "-fsyntax-only", f"-I{tmp_path}", str(tmp_path / "out" / name)]
        assert subprocess.run(command, check=False, capture_output=True).returncode == 0
    header.write_text(HEADER.replace("uint32_t n_tokens;", "uint64_t n_tokens;"), encoding="utf-8")
    assert skippy(*arguments, "--header", header).code == 1


def test_command_fails_on_a_refused_struct(tmp_path: Path) -> None:
    """A file in which one struct is refused is no pass, and naming that struct says why."""
    path = rust(tmp_path, "#[repr(C)] struct A { a: u8 }\n#[repr(C)] struct B { a: String }\n")
    assert skippy("abi", "--rust", path).code == 1
    assert skippy("abi", "--rust", path, "--struct", "A").code == 0
    ran = skippy("abi", "--rust", path, "--struct", "B")
    assert (ran.code, "lib.rs:2" in ran.err, "String" in ran.err) == (2, True, True)


@pytest.mark.parametrize(
    ("variants", "fits"),
    [
        ("A = 0, B", True),
        ("A = -1, B = 0x7fff_ffff", True),
        ("A = 1 << 3, B = 1 << 31", True),
        ("A = 0xffff_ffffu32", True),
        ("A = 0x1_0000_0000", False),
        ("A = -1, B = 4_000_000_000", False),
        ("A = 0xffff_ffff, B", False),
        ("A = 1 << 32", False),
        ("A = OTHER", False),
        ("A = 1 + 1", False),
    ],
)
def test_an_enum_that_may_be_wider_than_cs_is_refused(tmp_path: Path, variants: str, fits: bool) -> None:
    """A value that needs eight bytes makes a repr(C) enum eight bytes wide; what is not evaluated is not guessed."""
    path = rust(tmp_path, f"#[repr(C)] enum E {{ {variants} }} #[repr(C)] struct S {{ a: u8, e: E }}")
    found = read_rust([path])
    assert ("S" in found.layout.structs) is fits
    if fits:
        assert found.layout.structs["S"].size == 8
        assert check_mirror(found).ok
    else:
        assert "discriminant" in found.problems[0].words


def test_rustc_agrees_about_wide_enums(tmp_path: Path) -> None:
    """The compiler says four bytes for those that are laid out, and eight for those that are refused."""
    rustc = shutil.which("rustc")
    if rustc is None:
        pytest.skip("rustc is not installed")
    path = tmp_path / "wide.rs"
    path.write_text(
        "#![allow(warnings)]\n#[repr(C)] enum A { A = -1, B = 0x7fff_ffff }\n#[repr(C)] enum B { A = 0xffff_ffff }\n"
        "#[repr(C)] enum C { A = 0x1_0000_0000 }\n#[repr(C)] enum D { A = -1, B = 4_000_000_000 }\n"
        'fn main() { println!("{} {} {} {}", std::mem::size_of::<A>(), std::mem::size_of::<B>(), '
        "std::mem::size_of::<C>(), std::mem::size_of::<D>()); }\n",
        encoding="utf-8",
    )
    subprocess.run([rustc, "-o", tmp_path / "wide", path], check=True, capture_output=True)
    assert subprocess.run([tmp_path / "wide"], check=True, capture_output=True, text=True).stdout == "4 4 8 8\n"


@pytest.mark.parametrize(
    ("member", "words"),
    [
        ("a: [u8; -5]", "out of range"),
        ("a: [u8; 99999999999999999999999999]", "out of range"),
        ("int: u8", "a word of C"),
        ("r#struct: u8", "a word of C"),
    ],
)
def test_what_c_cannot_say_is_refused_by_name(tmp_path: Path, member: str, words: str) -> None:
    """Named before the mirror is compiled, where the compiler's words would blame the rules of this project."""
    found = read_rust([rust(tmp_path, f"#[repr(C)] struct S {{ {member}, b: u32 }}")])
    assert words in found.problems[0].words


@pytest.mark.parametrize(
    "text",
    [
        "#[repr(C)] struct S { a: " + "[" * 3000 + "u8" + "; 1]" * 3000 + " }",
        "".join(f"type A{n} = A{n + 1};" for n in range(3000)) + "type A3000 = u8; #[repr(C)] struct S { a: A0 }",
    ],
    ids=["arrays", "aliases"],
)
def test_types_without_bottom_are_refused(tmp_path: Path, text: str) -> None:
    """Nesting deeper than the reader follows is named, and no fault of the program."""
    with pytest.raises(RustUnsupported, match="nested deeper"):
        read_rust([rust(tmp_path, text)])


@pytest.mark.parametrize("name", ["/dev/zero", "pipe", "."])
def test_what_is_no_file_of_rust_is_refused_at_once(tmp_path: Path, name: str) -> None:
    """A device without an end and a pipe without a writer neither fill the memory nor wait."""
    path = tmp_path / name
    if name == "pipe":
        os.mkfifo(path)
    ran = skippy("abi", "--rust", path)
    assert ran.code == 2
    assert str(path) in ran.err
