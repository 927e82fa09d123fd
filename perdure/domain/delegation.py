"""What workflows and activities say to each other about runs: ids, never text.

Invariant: the store decides, the workflow carries out. A workflow that is woken asks the store
what there is to do, and doing it twice does nothing more.
"""

from __future__ import annotations

from perdure.domain.envelopes import Envelope
from perdure.domain.labels import Label
from perdure.domain.messages import Frozen
from perdure.domain.runs import EndReason
from perdure.domain.steps import ChildStart


class Supervise(Frozen):
    """Ask what is to be done for the runs of a session, which is itself at `label`."""

    session_key: str
    agent: str
    label: Label


class Supervision(Frozen):
    """What is to be done: runs to start, messages to take in, and, where the session is a run
    itself, why it is to stop. Ask again after `seconds`, if it says so."""

    start: tuple[ChildStart, ...] = ()
    admit: tuple[Envelope, ...] = ()
    stop: EndReason | None = None
    seconds: float | None = None
    #: Runs that wait for a place.
    queued: int = 0
    #: Runs under way.
    running: int = 0
    #: Whether runs have ended just now that waited for a place.
    dropped: bool = False


class UpkeepReport(Frozen):
    """What a round of upkeep did: runs it ended because nothing else would, runs whose parent it
    woke, and how many files of results it removed."""

    ended: tuple[str, ...] = ()
    woken: tuple[str, ...] = ()
    swept: int = 0

    @property
    def told(self) -> str:
        """The report in a line."""
        return (
            f"{len(self.ended)} lost runs ended, {len(self.woken)} parents woken, "
            f"{self.swept} results removed"
        )


class Conclude(Frozen):
    """Bring a run to its end, after its newest turn: `stop` says why, if it did not come to one
    itself. `final` once nothing is outstanding any more: no run of its own, and no message."""

    run_id: str
    session_key: str
    agent: str
    label: Label
    stop: EndReason | None = None
    final: bool = False


class Concluded(Frozen):
    """How a run ended; or the message by which it is told what is still missing; or neither,
    when something is outstanding that it is to take in first."""

    reason: EndReason | None = None
    repair: Envelope | None = None
