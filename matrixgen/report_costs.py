"""The cost model beside what receipts measured."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from matrixgen.battery import LaneSpec
from matrixgen.cost import START, lane_seconds
from matrixgen.errors import NothingSelected
from matrixgen.report import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrixgen.content import Manifest
    from matrixgen.receipts import ReceiptFacts


def costs_table(manifest: Manifest, receipts: Sequence[ReceiptFacts]) -> str:
    """One line a receipt: seconds by the model, seconds measured, their ratio; then the median ratio.

    Raises NothingSelected when no receipt belongs to a row.
    """
    rows, ratios = [], []
    for receipt in receipts:
        compared = compare(manifest, receipt)
        if compared is not None:
            expected, measured = compared
            ratios.append(measured / expected)
            cells = (f"{expected:.0f} s", f"{measured:.0f} s", f"{measured / expected:.2f}")
            rows.append((receipt.leg, receipt.subject, *cells))
    if not rows:
        raise NothingSelected("no receipt belongs to a row of the manifest; give the folder with --timings")
    text = table(("LEG", "SUBJECT", "MODEL", "MEASURED", "RATIO"), rows)
    return f"{text}\n\nmeasured / model: median {median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f}"


def compare(manifest: Manifest, receipt: ReceiptFacts) -> tuple[float, float] | None:
    """(seconds by the model, seconds measured) with default parameters, or None for a leg that no row plans."""
    name, _, backend = receipt.leg.partition("@")
    family = next((family for family in manifest.families if family.family == name), None)
    if family is None:
        return None
    size = family.weight_size if receipt.subject == "weights" else 0
    expected = measured = START
    for lane in receipt.lanes:
        spec = LaneSpec(lane.lane, manifest.batteries.defaults.get(lane.lane, {}))
        expected += lane_seconds(spec, size=size, backend=backend)
        measured += lane.seconds
    return expected, measured
