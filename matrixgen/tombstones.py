"""What must still go before a dropped family is really gone: patches that edit its graph, tables that know its name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from matrixgen.errors import InvalidValue, ManifestUnreadable
from matrixgen.findings import Finding
from matrixgen.source import read_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from matrixgen.content import Manifest
    from matrixgen.family import Family

#: What a folder is searched for; a file that is named itself is always read.
PATCHES = ("*.patch",)
TABLES = ("*family_capability*.rs", "*capabilit*.json", "*parity*.json", "*family*certified*.json")
_EDITED = re.compile(r"^(?:\+\+\+|---) [ab]/src/models/([A-Za-z0-9._-]+)\.cpp$")
_TOUCHED = re.compile(r"^[+-][^+-].*\bLLM_ARCH_([A-Z0-9_]+)\b")
_QUOTED = re.compile(r'"([A-Za-z0-9._-]{1,64})"')


class Leftovers(NamedTuple):
    """`searched` counts files; a search of none is an error before this exists."""

    findings: tuple[Finding, ...]
    searched: int


def leftovers(manifest: Manifest, paths: Sequence[Path]) -> Leftovers:
    """Everything in `paths` (files, or folders of a checkout) that still serves a tombstone.

    Raises InvalidValue when nothing was searched, or a path does not exist.
    """
    dropped = [family for family in manifest.families if family.dropped]
    files = sorted({file for path in paths for file in _files(path)})
    if not files:
        raise InvalidValue(
            f"no patch and no capability table in {', '.join(map(str, paths)) or 'no path at all'}; a search of nothing would "
            f"be green. Folders are searched for {', '.join(PATCHES + TABLES)}; name other files themselves"
        )
    names = _Names(manifest, dropped)
    findings: list[Finding] = []
    for file in files:
        try:
            text = read_text(file)
        except ManifestUnreadable as error:
            raise InvalidValue(f"{error.problem}; leave it out, or repair it") from None
        search = _in_patch if file.suffix == ".patch" else _in_table
        findings += search(file, text, names)
    return Leftovers(tuple(findings), len(files))


def release_notes(manifest: Manifest) -> str:
    """The breaking-change entry of the release notes, in Markdown."""
    dropped = sorted((family for family in manifest.families if family.dropped), key=lambda family: family.family)
    rows = [f"| `{family.family}` | `{family.arch}` | {_cell(family.reason)} |" for family in dropped]
    return "\n".join(
        [
            f"### Breaking: {len(dropped)} model families are no longer supported",
            "",
            'A model of one of these families stops loading with "unsupported family". There is no deprecation period. The',
            "architecture is what `general.architecture` in the header of the file says.",
            "",
            "| family | architecture | why |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


class _Names:
    """What stands for a tombstone and for no kept row."""

    def __init__(self, manifest: Manifest, dropped: Sequence[Family]) -> None:
        kept = [family for family in manifest.families if not family.dropped]
        kept_stems = {stem for family in kept for stem in family.llama_models}
        kept_words = {word for family in kept for word in (family.family, family.arch)}
        self.stems = {s: f for f in dropped for s in f.llama_models if s not in kept_stems}
        self.words = {
            word: f for f in dropped for word in (f.family, f.arch) if word is not None and word not in kept_words
        }
        self.constants = {word.upper().replace("-", "_"): f for word, f in self.words.items()}


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    elif path.is_dir():
        for pattern in PATCHES + TABLES:
            yield from (file for file in path.rglob(pattern) if file.is_file())
    else:
        raise InvalidValue(f"{path} does not exist; give files or folders of the product's checkout")


def _in_patch(path: Path, text: str, names: _Names) -> Iterator[Finding]:
    told: set[str] = set()
    for number, line in enumerate(text.splitlines(), 1):
        edited, touched = _EDITED.match(line), _TOUCHED.match(line)
        family = names.stems.get(edited[1]) if edited else names.constants.get(touched[1]) if touched else None
        if family is not None and family.family not in told:
            told.add(family.family)
            what = f"the patch still edits {edited[1]}.cpp" if edited else "the patch still names the architecture"
            fix = "drop this part of the patch; it is what every rebase costs"
            yield _finding("MG050", path, number, f"{what} of tombstone {family.family}", fix)


def _in_table(path: Path, text: str, names: _Names) -> Iterator[Finding]:
    for number, line in enumerate(text.splitlines(), 1):
        for word in _QUOTED.findall(line):
            if (family := names.words.get(word.lower().replace("_", "-"))) is not None:
                what = f"the table still knows tombstone {family.family}"
                yield _finding(
                    "MG051", path, number, what, "remove the entry: no other rule may infer the family either"
                )
                break


def _finding(id_: str, path: Path, line: int, message: str, fix: str) -> Finding:
    name = ascii(path.as_posix())[1:-1]
    return Finding(id=id_, severity="error", file=name, pointer="", line=line, message=message, fix=fix)


def _cell(text: str) -> str:
    """Text that cannot leave its cell of a Markdown table."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("`", "'").replace("\n", " ")
