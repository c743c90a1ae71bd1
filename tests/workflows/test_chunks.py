"""More legs than one matrix holds, under act: each leg of the plan gets its job, on two levels of called workflows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.workflows.acting import calling, make_product, run_act

pytestmark = pytest.mark.slow

LEGS = 258
#: What a job does here instead of certifying: it says that it ran.
STAND_IN = """\
    steps:
      - env:
          LEGS: ${{ matrix.legs }}
          DIGEST: ${{ inputs.plan_digest }}
        run: echo "$LEGS $DIGEST" >>"$RAN"
"""


def many_families(product: Path) -> None:
    """Give the product's manifest LEGS rows of tier 1, and its jobs a stand-in for everything they do."""
    families = product / "manifests" / "families.json"
    rows = json.loads(families.read_text(encoding="utf-8"))["families"]
    base = next(row for row in rows if row["family"] == "mamba")
    made = [base | {"family": f"family-{number:03}", "artifact": None} for number in range(LEGS)]
    families.write_text(json.dumps({"schema_version": 1, "families": made}), encoding="utf-8")
    chunk = product / ".github" / "workflows" / "family-certify-chunk.yml"
    text = chunk.read_text(encoding="utf-8")
    chunk.write_text(text[: text.index("    steps:\n")] + STAND_IN, encoding="utf-8")


def test_more_legs_than_a_matrix_holds(tmp_path: Path) -> None:
    """All of 258 legs run once, with the plan's digest; the gate expects every one of them, and misses those without receipt."""
    options = {"event": "pull-request", "engine": "binding", "build_script": "build.sh"}
    product = make_product(tmp_path, calling("required check", **options))
    many_families(product)
    ran = tmp_path / "ran"
    run = run_act(product, tmp_path, RAN=str(ran))
    plan = json.loads((run.artifacts / "skippy-plan.certify.1" / "plan.json").read_text(encoding="utf-8"))
    expected = [f"{leg['id']} {plan['digest']}" for leg in plan["legs"]]
    assert len(expected) == LEGS
    assert sorted(ran.read_text(encoding="utf-8").splitlines()) == expected, run.log[-4000:]
    verdict = run.verdict()
    assert run.code != 0
    assert verdict["state"] == "infra"
    legs = verdict["legs"]
    assert isinstance(legs, list)
    assert len(legs) == LEGS
