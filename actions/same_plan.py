"""Usage: same_plan.py PLAN DIGEST. Refuses a plan that is not the one that the plan job made: it came through an artifact."""

from __future__ import annotations

import sys
from pathlib import Path


def main(path: str, wanted: str) -> str:
    """Empty if the plan at `path` has the digest `wanted` and was not changed; else what is wrong."""
    from matrixgen.errors import MatrixgenError
    from matrixgen.plan import read_plan

    try:
        found = read_plan(Path(path)).digest
    except MatrixgenError as error:
        return f"{path}: {error}"
    return "" if found == wanted else f"{path} has digest {found}, the plan job made {wanted}: it is of another run"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) or 0)
