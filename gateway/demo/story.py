"""What the demo says to its agents: as directives for the rehearsal model, or in plain language.

Invariant: both tell the same story, task by task, so that both can be killed at the same places.
What a model cannot be asked for in plain language is absent, and told to be.
"""

from __future__ import annotations

from perdure.domain.messages import Frozen

#: What is dictated first, and asked for last: with what is easily lost on the way.
FIRST = (
    "Before all else: the key to the archive lies under the third stone from the left — 東京, "
    "«naïve», two  spaces, </summary>, 🗝."
)


class Settling(Frozen):
    """How a date is settled: what each desk is told first, and what the lead is asked."""

    editor: str
    printer: str
    lead: str


class Story(Frozen):
    """The messages of a demo, and when to strike. Times are seconds."""

    #: To the lead: have three documents read. The worker is killed meanwhile.
    delegate: str
    #: To the run that reads too much.
    steering: str
    #: To the lead: kill the run that hangs, spawn another, wait for all, write the report.
    #: STEADY_RUN, STRAY_RUN and HUNG_RUN stand for runs.
    assemble: str
    #: The step of the run spawned last in which everything is killed.
    fatal_step: int
    #: To the clerk: something public is told, something CONFIDENTIAL read, and nothing of it can be
    #: told in public; then it may be told where it may flow, when a person agrees.
    leak: str
    ask: str
    #: To the archive, again and again: NUMBER and TEXT stand for what is dictated.
    keep: str
    first: str
    #: To the archive, in the end.
    recall: str
    #: None for a model that is not told word for word what to say, and so closes no ring.
    settling: Settling | None
    #: From the start of the fatal step's model call to the kill of Temporal.
    outage_after: float
    #: Between two things that are dictated.
    pause: float
    #: The longest wait for one thing to happen.
    patience: float

    def kept(self, number: int, text: str) -> str:
        """What is dictated as that number, the first one being 1."""
        if number == 1:
            return self.first
        return self.keep.replace("NUMBER", str(number)).replace("TEXT", text)

    def assembling(self, *, steady: str, stray: str, hung: str) -> str:
        """The second message to the lead, about these runs."""
        told = self.assemble.replace("STEADY_RUN", steady)
        return told.replace("STRAY_RUN", stray).replace("HUNG_RUN", hung)
