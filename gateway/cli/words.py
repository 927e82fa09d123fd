"""How facts are put for people: text made safe for a terminal, arguments, figures, times.

Invariant: pure functions from values to text; nothing here writes.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta

from gateway.live_items import RunChange, RunChanged
from perdure.domain.messages import Usage
from perdure.domain.runs import EndReason, RunStatus
from perdure.store.transcript import TurnResult

#: C0 and C1 controls, without the line feed.
_CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """`text` as it may go to a terminal: control characters gone, a tab as four spaces."""
    return _CONTROLS.sub("", text.replace("\t", "    "))


def one_line(text: str, limit: int) -> str:
    """The beginning of `text` on one line, in at most `limit` characters."""
    line = " ".join(printable(text).split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def shown_arguments(arguments: str) -> str:
    """A tool call's JSON arguments on one line, as `path=README.md start_line=3`."""
    try:
        values = json.loads(arguments)
    except ValueError:
        values = None
    if not isinstance(values, dict):
        return one_line(arguments, 200)
    return " ".join(f"{name}={_shown_value(value)}" for name, value in values.items())


def _shown_value(value: object) -> str:
    if isinstance(value, str) and re.fullmatch(r"[^\s\"']+", printable(value)):
        return printable(value)
    return one_line(json.dumps(value, ensure_ascii=False), 200)


def asked_to_approve(tool: str, approval_id: str) -> str:
    """That a call waits for a person, and what the person may do."""
    return f"{tool} waits for approval: perdure approvals approve|deny {approval_id}"


def run_changed(item: RunChanged) -> str:
    """What a run of a session has come to, on one line."""
    run = item.run_id
    match item.change:
        case RunChange.QUEUED:
            return f"{run} waits for a place"
        case RunChange.STARTED:
            return f"{run} has begun"
        case RunChange.STOPPING:
            return f"{run} is stopping ({item.reason})"
        case RunChange.STEERED if item.successor is not None:
            return f"{run} is steered: {item.successor} takes its place"
        case RunChange.STEERED:
            return f"{run} is steered"
        case RunChange.ENDED:
            return f"{run} has ended: {item.reason}"
        case RunChange.KEPT:
            return f"the result of {run} is kept ({item.reason}): perdure result {run}"


def figures(result: TurnResult, seconds: float | None = None) -> str:
    """What a turn took, on one line; `seconds` if it was watched."""
    parts = [f"turn {result.turn}", plural(result.steps, "step"), spent(result.usage)]
    if seconds is not None:
        parts.append(f"{seconds:.1f} s")
    return " · ".join(parts)


def spent(usage: Usage) -> str:
    """Tokens and, where a price is known, US dollars."""
    tokens = f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out"
    return tokens if usage.cost is None else f"{tokens} · {dollars(usage.cost)}"


def dollars(cost: float | None) -> str:
    """An amount with as many digits as tell something."""
    if cost is None:
        return "no price known"
    if cost and cost < 0.01:
        return f"${cost:.4f}" if cost >= 0.0001 else "under $0.0001"
    return f"${cost:,.2f}"


def plural(count: int, what: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def clock(at: datetime) -> str:
    """A moment in the local time of whoever reads it."""
    return f"{at.astimezone():%Y-%m-%d %H:%M:%S}"


def left(at: datetime) -> str:
    """How long until: `12 s`, `5 min`, `3 h`, `20 d`; `0 s` when it is over."""
    until = max(at - datetime.now(UTC), timedelta())
    for unit, length in (
        ("d", timedelta(days=1)),
        ("h", timedelta(hours=1)),
        ("min", timedelta(minutes=1)),
    ):
        if until >= 2 * length:
            return f"{until // length} {unit}"
    return f"{int(until.total_seconds())} s"


def duration(seconds: float) -> str:
    """How long something took: `0.4 s`, `12 s`, `5 min`, `3 h`, `20 d`."""
    if seconds < 10:
        return f"{max(seconds, 0):.1f} s"
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{int(seconds // length)} {unit}"
    return f"{int(seconds)} s"


def run_state(status: RunStatus, reason: EndReason | None) -> str:
    """A run's state, and why it ended where that says more: `failed (step_limit)`."""
    if reason is None or reason.value == status.value:
        return status
    return f"{status} ({reason})"


def ago(at: datetime) -> str:
    """How long since: `12 s`, `5 min`, `3 h`, `20 d`."""
    since = max(datetime.now(UTC) - at, timedelta())
    for unit, length in (("d", timedelta(days=1)), ("h", timedelta(hours=1))):
        if since >= 2 * length:
            return f"{since // length} {unit} ago"
    minutes = since // timedelta(minutes=1)
    return f"{minutes} min ago" if minutes >= 2 else f"{int(since.total_seconds())} s ago"
