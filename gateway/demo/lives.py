"""The lives of the runs, as a table shows them: how far each came, and what happened to it.

Invariant: pure functions of the evidence.
"""

from __future__ import annotations

from collections.abc import Iterator

from gateway.demo.cast import name_of
from gateway.demo.delegated import Delegated
from gateway.demo.evidence import Evidence
from perdure.domain.messages import Frozen
from perdure.domain.runs import EndReason, status_of


class Life(Frozen):
    """A run in figures and words."""

    run_id: str
    document: str
    state: str
    steps: int
    tokens: int
    seconds: float
    happened: tuple[str, ...]


def lives(evidence: Evidence) -> tuple[Life, ...]:
    """Every run, in the order in which they were spawned."""
    return tuple(_life(evidence, run) for run in evidence.delegation.runs)


def _life(evidence: Evidence, run: Delegated) -> Life:
    steps = [step for step in evidence.steps if step.session_key == run.session_key]
    return Life(
        run_id=run.run_id,
        document=name_of(next(iter(run.documents), "")),
        state=status_of(run.state, run.end_reason),
        steps=len(steps),
        tokens=sum(step.tokens for step in steps),
        seconds=round(run.seconds, 1),
        happened=tuple(_happened(evidence, run)),
    )


def _happened(evidence: Evidence, run: Delegated) -> Iterator[str]:
    steps = [step for step in evidence.steps if step.session_key == run.session_key]
    steered = [other for other in evidence.delegation.runs if other.follows == run.run_id]
    same = [other for other in evidence.delegation.runs if other.documents == run.documents]
    if run.follows is not None:
        yield "takes the place of the one that was steered"
    elif any(other.end_reason is EndReason.KILLED for other in same[: same.index(run)]):
        yield "spawned anew"
    if again := sum(step.attempts - 1 for step in steps if step.attempts):
        yield f"{_count(again, 'model call')} cut by SIGKILL, and made again"
    if reused := sum(step.reused for step in steps):
        yield f"{_count(reused, 'answer')} found committed after SIGKILL, and not paid again"
    if steered:
        yield "steered: its successor does something else"
    elif run.end_reason is EndReason.KILLED:
        yield "killed in a model call that did not come back"
    elif run.end_reason is EndReason.COMPLETED:
        yield "result handed over"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
