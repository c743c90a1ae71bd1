"""skippy-agent, with faults that only the tests can ask for.

STUB_FAULT="LEG FAULT LANE" runs that lane of that leg with a fault seeded into llama.cpp; STUB_LOST="LEG" ends without a receipt,
as a runner that went away does.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from typing import Any

from agent import certify
from agent.cli import main
from agent.runner.job import Job
from agent.runner.supervise import Outcome, supervise

_leg, _fault, _lane = os.environ.get("STUB_FAULT", "no-leg@cpu no-fault no-lane").split()


def _supervise(job: Job, observer: Any, timeout_seconds: float) -> Outcome:
    if not _leg.startswith(f"{job.family.family}@"):
        return supervise(job, observer, timeout_seconds)
    lanes = tuple((f"{_fault}/{name}" if name == _lane else name, params) for name, params in job.lanes)
    outcome = supervise(dataclasses.replace(job, lanes=lanes), observer, timeout_seconds)
    results = tuple(dataclasses.replace(result, lane=result.lane.rpartition("/")[2]) for result in outcome.results)
    return dataclasses.replace(outcome, results=results)


if "certify" in sys.argv and f"--leg={os.environ.get('STUB_LOST')}" in sys.argv:
    sys.exit("the runner went away")
certify.supervise = _supervise  # type: ignore[attr-defined]
main()
