"""Files that are not GGUF are named for what they are."""

from __future__ import annotations

import json
import os
import struct
import zipfile
from pathlib import Path

import pytest

from agent.errors import HeaderUnreadable, NotAGguf
from agent.header.reader import read_header
from agent.header.verdicts import NEXT_STEP, Verdict
from tests.agent.header.kit import architecture, gguf

_HTML = b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head></html>\n"
_XML = b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>AccessDenied</Code>' + b"<x/>" * 140 + b"</Error>"
_LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 397808192\n"
_SAFETENSORS_HEAD = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
_SAFETENSORS = struct.pack("<Q", len(_SAFETENSORS_HEAD)) + _SAFETENSORS_HEAD + b"\0" * 4

CASES = [
    pytest.param(b"", "empty", id="D1-empty"),
    pytest.param(b"fmgg" + b"\0" * 12, "legacy_ggml", id="D1-fmgg"),
    pytest.param(b"tjgg" + b"\0" * 12, "legacy_ggml", id="D1-tjgg"),
    pytest.param(b"lmgg" + b"\0" * 12, "legacy_ggml", id="D1-lmgg"),
    pytest.param(b"algg" + b"\0" * 12, "legacy_ggml", id="D1-algg"),
    pytest.param(b"ggjt" + b"\0" * 12, "legacy_ggml", id="D1-ggjt"),
    pytest.param(b"FUGG" + b"\0" * 12, "big_endian", id="D1-FUGG"),
    pytest.param(b"GGUF" + struct.pack("<III", 1, 0, 0) + b"\0" * 16, "gguf_v1", id="D1-version-1"),
    pytest.param(b"vers" + b"ion " * 3, "lfs_pointer", id="D1-vers"),
    pytest.param(b"<!DO" + b"CTYPE html>\n", "html_page", id="D1-doctype"),
    pytest.param(b"PK\x03\x04" + b"\0" * 12, "zip", id="D1-zip"),
    pytest.param(b"\x93NUMPY\x01\x00" + b"\0" * 8, "unknown_magic", id="D1-numpy"),
    pytest.param(_HTML, "html_page", id="C4-html"),
    pytest.param(b"\xef\xbb\xbf \r\n" + _HTML, "html_page", id="C4-html-after-byte-order-mark"),
    pytest.param(b'<?xml version="1.0"?>\n' + _HTML, "html_page", id="C4-xhtml"),
    pytest.param(_XML, "xml_error", id="C4-xml-of-635-bytes"),
    pytest.param(_LFS, "lfs_pointer", id="C4-lfs-pointer"),
    pytest.param(b'{"error": "Repository not found"}', "json_document", id="C4-json"),
    pytest.param(_SAFETENSORS, "safetensors", id="D1-safetensors"),
    pytest.param(b"\x1f\x8b\x08\x00" + b"\0" * 12, "gzip", id="D1-gzip"),
    pytest.param(b"GGUF\x00\x00\x00\x03" + b"\0" * 24, "big_endian", id="D14-version-bytes-00000003"),
    pytest.param(b"GGUF\x00\x00\x00\x02" + b"\0" * 24, "big_endian", id="D14-version-2"),
    pytest.param(b"GGUF" + struct.pack("<I", 4) + b"\0" * 24, "gguf_version", id="D14-version-4"),
    pytest.param(b"GGUF" + struct.pack("<I", 0) + b"\0" * 24, "gguf_version", id="D14-version-0"),
    pytest.param(b"GGU", "truncated", id="D1-half-a-magic"),
    pytest.param(gguf([architecture()])[:23], "truncated", id="D1-23-bytes"),
]


@pytest.mark.parametrize(("data", "verdict"), CASES)
def test_the_real_format_is_named(tmp_path: Path, data: bytes, verdict: str) -> None:
    """Each foreign format has its own verdict, and the message says what to do."""
    path = tmp_path / "model.gguf"
    path.write_bytes(data)
    with pytest.raises(NotAGguf) as caught:
        read_header(path)
    assert caught.value.verdict == verdict
    assert NEXT_STEP[Verdict(verdict)] in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_real_zip_is_named(tmp_path: Path) -> None:
    """What zipfile writes is told from a model."""
    path = tmp_path / "model.gguf"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data.pkl", "x")
    with pytest.raises(NotAGguf) as caught:
        read_header(path)
    assert caught.value.verdict == "zip"


def test_an_error_body_is_shown_escaped(tmp_path: Path) -> None:
    """A hostile body cannot steer the terminal through the message."""
    path = tmp_path / "model.gguf"
    path.write_bytes(b'{"error": "\x1b[2J\r\nfake log line"}')
    with pytest.raises(NotAGguf) as caught:
        read_header(path)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("kind", "verdict"), [("missing", "missing_file"), ("folder", "not_a_file"), ("pipe", "not_a_file")]
)
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, kind: str, verdict: str) -> None:
    """A missing path, a folder and a pipe without a writer end with their verdict; the pipe does not block."""
    path = tmp_path / "thing"
    if kind == "folder":
        path.mkdir()
    if kind == "pipe":
        os.mkfifo(path)
    with pytest.raises(HeaderUnreadable) as caught:
        read_header(path)
    assert caught.value.verdict == verdict


def test_every_verdict_has_a_next_step_and_a_place_in_the_docs() -> None:
    """No verdict leaves the reader alone."""
    docs = (Path(__file__).parents[3] / "docs" / "header.md").read_text(encoding="utf-8")
    assert [verdict for verdict in Verdict if not NEXT_STEP.get(verdict)] == []
    assert [verdict for verdict in Verdict if f"`{verdict}`" not in docs] == []
