"""What the pin commit and its pull request say."""

from __future__ import annotations

from agent.gate.text import plain
from agent.gate.verdict import Verdict
from agent.gate.verdict_file import verdict_to_json

_MAX_ROWS = 60
_PULL_REQUEST_NOTE = (
    "The verdict is about exactly the parent of this commit. If the branch moved in the pin, the patches, the manifests or "
    "the workflows since, run the canary again instead of merging."
)


def commit_message(verdict: Verdict, old: str) -> str:
    """Subject, what was tested, a row a leg, and trailers that a program can read."""
    pin, counts = verdict.pin, verdict_to_json(verdict)
    new = str(pin["commit"])
    version = f" ({plain(str(pin['version']), 20)})" if pin.get("version") else ""
    width = max((len(leg.leg) for leg in verdict.legs), default=0)
    rows = [
        f"  {leg.leg:<{width}}  {leg.state}  {len(leg.lanes):>2} lanes  {leg.comparisons:>7} comparisons"
        for leg in verdict.legs[:_MAX_ROWS]
    ]
    if len(verdict.legs) > _MAX_ROWS:
        rows.append(f"  and {len(verdict.legs) - _MAX_ROWS} more, all {verdict.state}")
    context = verdict.context
    trailers = {
        "Verdict": counts["digest"],
        "Plan": verdict.plan,
        "Certified-Base": context.base_commit,
        "Certified-At": context.certified_at,
        "Run": f"{context.run_id} attempt {context.attempt}" if context.run_id else None,
    }
    lines = [
        f"Pin llama.cpp to {new[:12]}{version}",
        "",
        f"From {old}",
        f"to   {new}.",
        f"{len(verdict.legs)} legs, {verdict.comparisons} comparisons, event {verdict.event}: {verdict.state}.",
        "",
        *rows,
        "",
        *(f"{name}: {plain(str(value), 120)}" for name, value in trailers.items() if value is not None),
    ]
    return "\n".join(lines) + "\n"


def pull_request_text(message: str) -> tuple[str, str]:
    """Title and body. The message goes into a code block, where no mention and no link comes alive."""
    title, _, rest = message.partition("\n")
    return title, f"{_PULL_REQUEST_NOTE}\n\n```text\n{rest.strip()}\n```\n"
