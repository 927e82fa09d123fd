"""What is being worked on here and now: told to log lines, spans and metrics below it.

Invariant: it follows the context of a task and of the threads it asks, and ends with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass
class Work:
    """One activity under way. `tool` is named once it is known."""

    kind: str
    session: str | None = None
    agent: str = ""
    turn: int | None = None
    step: int | None = None
    call: int | None = None
    tool: str = ""


_current: ContextVar[Work | None] = ContextVar("work", default=None)
_fields: ContextVar[Mapping[str, object]] = ContextVar("log_fields", default={})  # noqa: B039


def fields() -> Mapping[str, object]:
    """What every log line from here tells besides its words."""
    return _fields.get()


def note(**more: object) -> None:
    """Have every further log line of this context tell `more`; None tells nothing."""
    _fields.set({**_fields.get(), **{name: it for name, it in more.items() if it is not None}})


def agent() -> str:
    """For whom it is done; empty when it is not known."""
    work = _current.get()
    return "" if work is None else work.agent


def name_tool(name: str) -> None:
    """Say which tool the call under way is of: a name from the catalogue, not the model's."""
    work = _current.get()
    if work is not None:
        work.tool = name


@contextmanager
def working(work: Work) -> Iterator[None]:
    """Work on it during the block."""
    outer = _current.set(work), _fields.set(_fields.get())
    try:
        note(session=work.session, turn=work.turn, step=work.step, call=work.call)
        note(agent=work.agent or None)
        yield
    finally:
        _current.reset(outer[0])
        _fields.reset(outer[1])
