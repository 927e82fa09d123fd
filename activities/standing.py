"""Where a tool call stands that waits for others: done, or to be looked at again.

Invariant: whatever it waits for is recorded in the store before it says so, and looking again
finds it there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perdure.domain.envelopes import Envelope
from perdure.domain.labels import Label
from perdure.domain.steps import ChildStart, WaitsFor


@dataclass(frozen=True)
class Pending:
    """No result yet: look again when woken, or after `seconds` at most."""

    seconds: float
    on: WaitsFor
    #: A run whose workflow is to be started.
    start: ChildStart | None = None
    #: Whether a run waits for a place.
    queued: bool = False
    #: A message to be answered on a side thread first.
    aside: Envelope | None = None


@dataclass(frozen=True)
class Done:
    """The result, of any type that has a JSON form, and the level of what it tells."""

    value: Any
    label: Label = Label.PUBLIC
    #: A run whose workflow is to be started.
    start: ChildStart | None = None
    #: Whether a run waits for a place.
    queued: bool = False
