"""Whether a verdict may move the pin at all: green, of this plan, about a commit, and fresh."""

from __future__ import annotations

import datetime as dt

from agent.errors import VerdictRefused
from agent.gate.reason import State
from agent.gate.verdict import Verdict
from matrixgen.leg import Plan

DEFAULT_MAX_AGE_HOURS = 24
_CLOCK_SKEW = dt.timedelta(minutes=5)


def require_current(verdict: Verdict, plan: Plan, *, now: dt.datetime, max_age_hours: float) -> str:
    """The commit that was tested, 40 hex.

    Raises:
        VerdictRefused: the verdict is not green, of another plan, about no commit, too old, or from the future.
    """
    if verdict.state is not State.GREEN:
        causes = ", ".join(verdict.causes)
        raise VerdictRefused(f"the verdict is {verdict.state} ({causes}), and only a green one moves the pin")
    if verdict.plan != plan.digest or verdict.pin != plan.pin.to_json():
        raise VerdictRefused(
            f"the verdict is about plan {verdict.plan}, the plan that was given is {plan.digest}: give the plan of that run"
        )
    if [leg.leg for leg in verdict.legs] != [leg.id for leg in plan.legs]:
        raise VerdictRefused("the verdict's legs are not those of the plan: make it anew with `skippy-agent gate`")
    require_fresh(verdict, now=now, max_age_hours=max_age_hours)
    if verdict.context.base_commit is None:
        raise VerdictRefused(
            "the verdict does not say which commit was tested: make it anew with `skippy-agent gate --base-commit`"
        )
    return verdict.context.base_commit


def require_fresh(verdict: Verdict, *, now: dt.datetime, max_age_hours: float) -> None:
    """Raise VerdictRefused if the verdict is older than allowed, or says that it will be made in the future."""
    try:
        made = dt.datetime.fromisoformat(verdict.context.certified_at)
    except ValueError:
        raise VerdictRefused(f"the verdict's time {verdict.context.certified_at!r} is none: make it anew") from None
    if made > now + _CLOCK_SKEW:
        raise VerdictRefused(f"the verdict was made at {made.isoformat()}, which is in the future: check the clocks")
    age = (now - made).total_seconds() / 3600
    if age > max_age_hours:
        raise VerdictRefused(
            f"the verdict is {age:.1f} hours old and may be {max_age_hours:g}: run the canary again, and find out why it stopped"
        )
