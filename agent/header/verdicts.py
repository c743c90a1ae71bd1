"""Names of all that can be wrong with a model file, each with the sentence that says what to do.

The names are stable: receipts carry them, and `docs/header.md` explains each.
"""

from __future__ import annotations

from enum import StrEnum

_FETCH = "Delete it, fetch it again and compare its sha256 with the manifest."
_CONVERT = "Convert the model again with the converter of the llama.cpp pin."


class Verdict(StrEnum):
    """One cause. The comment groups are the error classes that carry them."""

    # HeaderUnreadable
    MISSING_FILE = "missing_file"
    NOT_A_FILE = "not_a_file"
    UNREADABLE = "unreadable"

    # NotAGguf
    EMPTY = "empty"
    TRUNCATED = "truncated"  # also HeaderInvalid
    HTML_PAGE = "html_page"
    XML_ERROR = "xml_error"
    JSON_DOCUMENT = "json_document"
    LFS_POINTER = "lfs_pointer"
    ZIP = "zip"
    GZIP = "gzip"
    SAFETENSORS = "safetensors"
    LEGACY_GGML = "legacy_ggml"
    BIG_ENDIAN = "big_endian"
    GGUF_V1 = "gguf_v1"
    GGUF_VERSION = "gguf_version"
    UNKNOWN_MAGIC = "unknown_magic"

    # HeaderInvalid: the container
    LIMIT_EXCEEDED = "limit_exceeded"
    BAD_VALUE_TYPE = "bad_value_type"
    BAD_NAME = "bad_name"
    DUPLICATE_KEY = "duplicate_key"
    DUPLICATE_TENSOR = "duplicate_tensor"
    BAD_SHAPE = "bad_shape"
    BAD_ALIGNMENT = "bad_alignment"
    BAD_OFFSET = "bad_offset"
    OVERLAP = "overlap"
    CONCATENATED = "concatenated"
    SPLIT_MISMATCH = "split_mismatch"
    MISSING_SHARDS = "missing_shards"

    # HeaderInvalid: the model
    MISSING_ARCHITECTURE = "missing_architecture"
    BAD_BLOCK_COUNT = "bad_block_count"
    MISSING_KEY = "missing_key"
    BAD_VALUE = "bad_value"
    BAD_LAYER_MAP = "bad_layer_map"

    # WrongRole
    WRONG_ROLE = "wrong_role"


NEXT_STEP: dict[Verdict, str] = {
    Verdict.MISSING_FILE: "Check the path, or fetch the file.",
    Verdict.NOT_A_FILE: "Name the .gguf file itself.",
    Verdict.UNREADABLE: "Check the permissions and the disk.",
    Verdict.EMPTY: "The download never began or was cut at once: fetch it again.",
    Verdict.TRUNCATED: "The file is cut short or corrupt. " + _FETCH,
    Verdict.HTML_PAGE: (
        "A web page was saved in place of the model (a login, an error or a consent page): fetch the file "
        "through its resolve address, with a token if the repository is gated."
    ),
    Verdict.XML_ERROR: (
        "The object store answered with an error that was saved as the model: read it, correct the address or "
        "the credentials, fetch again."
    ),
    Verdict.JSON_DOCUMENT: (
        "A JSON document (an API's answer, or a configuration) was saved in place of the model: check the address."
    ),
    Verdict.LFS_POINTER: (
        "This is the Git LFS pointer, not the model: run `git lfs pull`, or fetch the file from the hub."
    ),
    Verdict.ZIP: "This is a ZIP archive (or a PyTorch checkpoint): unpack it, or convert the checkpoint to GGUF.",
    Verdict.GZIP: "Decompress it first.",
    Verdict.SAFETENSORS: "These are safetensors weights: convert them to GGUF with the converter of the llama.cpp pin.",
    Verdict.LEGACY_GGML: "This format came before GGUF and llama.cpp dropped it: fetch or convert a GGUF of the model.",
    Verdict.BIG_ENDIAN: "The file is for big-endian machines: convert it with `gguf-convert-endian FILE little`.",
    Verdict.GGUF_V1: "llama.cpp dropped GGUF version 1: fetch or convert a newer GGUF of the model.",
    Verdict.GGUF_VERSION: "The file is newer than the llama.cpp pin, or corrupt: move the pin, or fetch it again.",
    Verdict.UNKNOWN_MAGIC: "This is no GGUF: check that the right file was fetched.",
    Verdict.LIMIT_EXCEEDED: "No model known needs as much, so the file is taken for corrupt. " + _FETCH,
    Verdict.BAD_VALUE_TYPE: "The file is corrupt, or of a later format. " + _FETCH,
    Verdict.BAD_NAME: "llama.cpp would refuse the name or read another one. " + _CONVERT,
    Verdict.DUPLICATE_KEY: "Readers would disagree about which one counts. " + _CONVERT,
    Verdict.DUPLICATE_TENSOR: "Readers would disagree about which one counts. " + _CONVERT,
    Verdict.BAD_SHAPE: _FETCH,
    Verdict.BAD_ALIGNMENT: _CONVERT,
    Verdict.BAD_OFFSET: _CONVERT,
    Verdict.OVERLAP: _CONVERT,
    Verdict.CONCATENATED: (
        "Shards must not be joined with `cat`: keep them apart, or merge them with `llama-gguf-split --merge`."
    ),
    Verdict.SPLIT_MISMATCH: (
        "Keep the names that `llama-gguf-split` gave, and fetch all shards of one model from one revision."
    ),
    Verdict.MISSING_SHARDS: "Fetch the missing files into the same folder.",
    Verdict.MISSING_ARCHITECTURE: "The architecture is never guessed from names. " + _CONVERT,
    Verdict.BAD_BLOCK_COUNT: _CONVERT,
    Verdict.MISSING_KEY: _CONVERT,
    Verdict.BAD_VALUE: _CONVERT,
    Verdict.BAD_LAYER_MAP: "No model has layers as the file describes them. " + _CONVERT,
    Verdict.WRONG_ROLE: "Check the file name in the manifest row.",
}
