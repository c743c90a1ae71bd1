"""Put the libraries of a build under test, after they were verified and their structs compared with the binding's."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from agent.build.abi import check_abi
from agent.build.archive import lend_build
from agent.build.record import LIBRARIES, BuildRecord
from agent.errors import BuildInvalid
from matrixgen.manifest import load_manifest
from matrixgen.pin import Pin
from matrixgen.plan import read_plan

_VARIABLE = "LLAMA_CPP_LIB_PATH"


@contextlib.contextmanager
def use_build(build: Path | None, *, plan: Path | None, manifests: Path | None) -> Iterator[None]:
    """While this lasts, children load the libraries of `build`; None leaves everything as it is.

    Raises:
        BuildInvalid: it is not what was built, not of the plan's pin, or its structs are not those of the binding.
    """
    if build is None:
        yield
        return
    with lend_build(build) as (folder, record):
        pin = read_plan(plan).pin if plan else load_manifest(manifests).pin
        if why := _not_of(pin, record):
            if plan:
                raise BuildInvalid(f"{build.name}: {why}: take the build that was made for this plan")
            sys.stderr.write(f"note: {build.name}: {why}; receipts of this run name the pin of the manifests\n")
        report = check_abi(actual=record.layout, libraries=folder / LIBRARIES)
        if not report.ok:
            first = next((finding for finding in report.findings if finding.severity == "error"), None)
            words = f"{first}. {first.fix}" if first else "nothing could be compared"
            raise BuildInvalid(f"{build.name}: the binding does not fit this build, no model was opened: {words}")
        before = os.environ.get(_VARIABLE)
        os.environ[_VARIABLE] = str(folder / LIBRARIES)
        try:
            yield
        finally:
            if before is None:
                os.environ.pop(_VARIABLE, None)
            else:
                os.environ[_VARIABLE] = before


def _not_of(pin: Pin, record: BuildRecord) -> str:
    if record.commit != pin.commit:
        return f"it is of llama.cpp {record.commit or 'of unknown commit'}, the pin is {pin.commit}"
    if record.patches != tuple((patch.name, patch.sha256) for patch in pin.patches):
        return "its patches are not those of the pin"
    return ""
