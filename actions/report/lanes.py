"""Usage: lanes.py VERDICT [LANE...]. Prints who passed each lane; exits 1 unless some leg owes it and all that owe it passed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.gate.verdict import Verdict


def lane_problems(verdict: Verdict, lane: str) -> list[str]:
    """Why `lane` does not count as tested; empty if it does."""
    owing = [(leg, entry) for leg in verdict.legs for entry in leg.lanes if entry.lane == lane]
    if not owing:
        return ["no leg of the plan owes it"]
    return [
        f"{leg.leg}: {entry.status}, {entry.comparisons} of at least {entry.least} comparisons"
        for leg, entry in owing
        if entry.status != "pass" or entry.comparisons < max(1, entry.least) or leg.state != "green"
    ]


def main(path: str, *lanes: str) -> int:
    """Print a Markdown line a lane; the exit code."""
    from agent.gate.verdict_file import read_verdict

    verdict = read_verdict(Path(path))
    worst = 0
    for lane in lanes:
        problems = lane_problems(verdict, lane)
        legs = sum(entry.lane == lane for leg in verdict.legs for entry in leg.lanes)
        sys.stdout.write(f"- `{lane}`: " + ("; ".join(problems) if problems else f"passed by all {legs} legs") + "\n")
        worst = worst or bool(problems)
    return int(worst)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
