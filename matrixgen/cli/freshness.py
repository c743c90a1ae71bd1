"""Whether the last verdict is fresh: a schedule that quietly stopped must not look like one that is green."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING

from matrixgen.errors import InvalidValue, ManifestUnreadable, NotFresh
from matrixgen.source import read_text

if TYPE_CHECKING:
    from pathlib import Path

SKEW = dt.timedelta(minutes=5)


def require_fresh(path: Path, max_age_days: int, now: dt.datetime | None = None) -> None:
    """Raise NotFresh when the verdict is older than `max_age_days`, or not green; InvalidValue when it cannot be read."""
    now = dt.datetime.now(dt.UTC) if now is None else now
    try:
        data = json.loads(read_text(path))
        made = dt.datetime.fromisoformat(data["context"]["certified_at"])
        state = str(data["state"])
        age = now - made
    except ManifestUnreadable as error:
        raise NotFresh(f"no verdict: {error.problem}; find out why none was made") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidValue(f"{path} is not a verdict of `skippy-agent gate`: {ascii(str(error))[:100]}") from None
    if age < -SKEW:
        raise NotFresh(f"the verdict {path} was made at {made.isoformat()}, in the future; check the clocks")
    if age > dt.timedelta(days=max_age_days):
        raise NotFresh(
            f"the last verdict was made at {made.isoformat()}, {age.days} days ago, and may be {max_age_days}; the schedule "
            "has stopped: look at the last runs of the workflow"
        )
    if state != "green":
        raise NotFresh(f"the last verdict is {ascii(state)[1:-1][:20]}, and only a green one counts as fresh")
