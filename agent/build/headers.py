"""The layout of structs, measured by compiling a program against a llama.cpp checkout's own headers."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from agent.binding.layout import Layout, machine_name
from agent.binding.used import STRUCTS
from agent.build.c_structs import CStruct, struct_fields
from agent.build.compiler import preprocess, run_source
from agent.errors import HeadersUnreadable

LLAMA_HEADERS = ("ggml.h", "ggml-backend.h", "llama.h")

_WORD = re.compile(r"[A-Za-z_]\w*")
_PROLOGUE = """\
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
"""

# Kinds that a ctypes binding can tell apart, too: the sign of an integer is left out, since an enum gets the one that the
# compiler chooses. An array decays in a comma expression and so shows that it is one.
_PROGRAM = """\
#define MEMBER(s, f) (((s *) 0)->f)
#define IS_ARRAY(x) (!__builtin_types_compatible_p(__typeof__(x), __typeof__((void) 0, x)))
#define IS_INTEGER(x) _Generic((x), char: 1, signed char: 1, short: 1, int: 1, long: 1, long long: 1, unsigned char: 1, \\
    unsigned short: 1, unsigned int: 1, unsigned long: 1, unsigned long long: 1, default: 0)
#define KIND(x) (IS_ARRAY(x) ? "other" : _Generic((x), _Bool: "bool", float: "float", double: "float", \\
    default: IS_INTEGER(x) ? "int" : __builtin_classify_type(x) == 5 ? "pointer" : "other"))
#define STRUCT(name, s) printf("{\\"name\\": \\"%s\\", \\"size\\": %zu, \\"align\\": %zu, \\"fields\\": [", \\
    name, sizeof(s), _Alignof(s))
#define FIELD(s, f) printf( \\
    "{\\"name\\": \\"%s\\", \\"offset\\": %zu, \\"size\\": %zu, \\"align\\": %zu, \\"kind\\": \\"%s\\"}", \\
    #f, offsetof(s, f), sizeof MEMBER(s, f), _Alignof(__typeof__(MEMBER(s, f))), KIND(MEMBER(s, f)))
"""


def llama_includes(checkout: Path) -> tuple[Path, ...]:
    """The include folders of a llama.cpp checkout.

    Raises:
        HeadersUnreadable: it is none.
    """
    folders = (checkout / "include", checkout / "ggml" / "include")
    for path in (folders[0] / "llama.h", folders[1] / "ggml.h"):
        if not os.path.isfile(path):  # noqa: PTH113 - False, too, for a folder that may not be read
            raise HeadersUnreadable(f"{path} does not exist: give the root of a llama.cpp checkout")
    return folders


def layout_of_checkout(checkout: Path) -> Layout:
    """The layout of every struct of llama.h and ggml.h that the headers of `checkout` define.

    Raises:
        HeadersUnreadable: the headers are missing, do not compile, or hold what this reader does not understand.
    """
    layout = layout_of_headers(LLAMA_HEADERS, llama_includes(checkout), source=f"headers of {checkout.name}")
    if missing := [name for name in STRUCTS if name not in layout.structs]:
        raise HeadersUnreadable(
            f"the headers of {checkout} define no struct {', '.join(missing)}: this is no llama.cpp"
        )
    return layout


def declared_in(checkout: Path, names: Iterable[str]) -> tuple[str, ...]:
    """Those of `names` that the headers of `checkout` use."""
    used = {
        word
        for header in LLAMA_HEADERS
        for word in _WORD.findall(_find(header, llama_includes(checkout)).read_text(encoding="utf-8", errors="replace"))
    }
    return tuple(name for name in names if name in used)


def layout_of_headers(headers: Sequence[str], includes: Sequence[Path], *, source: str) -> Layout:
    """The layout of the structs that `headers` define or whose names they use.

    Raises:
        HeadersUnreadable: a header does not compile, holds a member that this reader does not understand, or has bytes
            that no field explains.
    """
    structs = structs_of_headers(headers, includes, source=source)
    said, answer = run_source(program_of(_prologue(headers), structs), includes)
    if not said.ok:
        raise HeadersUnreadable(f"{source}: {_first_error(said.words)}: the fields of the headers were misread")
    layout = Layout.from_json({"source": source, "machine": machine_name(), "structs": json.loads(answer)})
    flat = [struct for struct in layout.structs.values() if structs[struct.name].flat]
    if gaps := [gap for struct in flat for gap in struct.unexplained()]:
        raise HeadersUnreadable(f"{source}: {gaps[0]} belong to no field that was read: a field was missed")
    return layout


def structs_of_headers(headers: Sequence[str], includes: Sequence[Path], *, source: str) -> dict[str, CStruct]:
    """The names of fields of those structs, sorted by name.

    Raises:
        HeadersUnreadable: a header does not compile, or holds a member that this reader does not understand.
    """
    texts = [_find(header, includes).read_text(encoding="utf-8", errors="replace") for header in headers]
    said, text = preprocess(_prologue(headers), includes)
    if not said.ok:
        raise HeadersUnreadable(f"{source}: {_first_error(said.words)}: the headers do not compile on their own")
    # what system headers define goes by names that these headers do not use
    used = {word for text in texts for word in _WORD.findall(text)}
    return dict(sorted(struct_fields(text, used).items()))


def _prologue(headers: Sequence[str]) -> str:
    return _PROLOGUE + "".join(f'#include "{header}"\n' for header in headers)


def program_of(include_lines: str, structs: Mapping[str, CStruct]) -> str:
    """A C program that prints the layout of `structs` as a JSON array."""
    lines = [include_lines, _PROGRAM, "int main(void) {", '    printf("[");']
    for place, (name, struct) in enumerate(structs.items()):
        comma = 'printf(",\\n "); ' if place else ""
        lines.append(f'    {comma}STRUCT("{name}", {struct.spelling});')
        for index, field in enumerate(struct.fields):
            comma = 'printf(", "); ' if index else ""
            lines.append(f"    {comma}FIELD({struct.spelling}, {field});")
        lines.append('    printf("]}");')
    return "\n".join([*lines, '    printf("]\\n");', "    return 0;", "}", ""])


def _find(header: str, includes: Sequence[Path]) -> Path:
    for path in (folder / header for folder in includes):
        if path.is_file():
            return path
    raise HeadersUnreadable(f"{header} is in none of {', '.join(map(str, includes))}: check the path")


def _first_error(words: str) -> str:
    lines = words.splitlines()
    return next((line for line in lines if "error:" in line), (lines or ["the compiler said nothing"])[0])
