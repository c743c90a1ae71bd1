"""A signature bundle beside a receipt: is there one, is it well formed, and is it about these bytes?

The certificate and the signature themselves are not verified here: that needs Sigstore's trust root and its log, which
`gh attestation verify` asks. What is checked is that the bundle can be what it claims to be, so that a missing, empty or
swapped one is found before anything is published.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

SUFFIX = ".sigstore.json"
MAX_BYTES = 2**20
_MEDIA_TYPE = "application/vnd.dev.sigstore.bundle"
_PAYLOAD_TYPE = "application/vnd.in-toto+json"


def bundle_problem(bundle: bytes | None, sha256: str) -> str | None:
    """Why `bundle` is no signature bundle for the file with digest `sha256`; None if it is one.

    The file may hold one bundle, or one a line as actions/attest writes it; one that fits is enough.
    """
    if bundle is None:
        return "no signature bundle beside it"
    if len(bundle) > MAX_BYTES:
        return f"its signature bundle has more than {MAX_BYTES} bytes"
    problem = "its signature bundle is empty"
    for text in _texts(bundle):
        found = _problem(text, sha256)
        if found is None:
            return None
        problem = found
    return problem


def _texts(bundle: bytes) -> list[str]:
    text = bundle.decode("utf-8", "replace").strip()
    return [text, *text.splitlines()] if text else []


def _problem(text: str, sha256: str) -> str | None:
    try:
        data = json.loads(text)
        envelope, material = data["dsseEnvelope"], data["verificationMaterial"]
        statement = json.loads(base64.b64decode(envelope["payload"], validate=True))
        subjects = [subject["digest"]["sha256"] for subject in statement["subject"]]
        signatures = [base64.b64decode(signature["sig"], validate=True) for signature in envelope["signatures"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, binascii.Error):
        return "its signature bundle is not a Sigstore bundle of an in-toto statement"
    if not _is_text(data, "mediaType", _MEDIA_TYPE) or envelope.get("payloadType") != _PAYLOAD_TYPE:
        return "its signature bundle is of another media type"
    if not isinstance(material, dict) or not material or not signatures or not all(signatures):
        return "its signature bundle has no signature or no certificate"
    if sha256 not in subjects:
        return "its signature bundle is about other bytes"
    return None


def _is_text(data: dict[str, Any], key: str, start: str) -> bool:
    return isinstance(data.get(key), str) and data[key].startswith(start)
