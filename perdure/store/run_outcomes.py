"""What a run has come to: its newest turn, what it has said, and what is written down of it.

Invariant: everything here is asked or recorded before the run ends, and any number of times.
"""

from __future__ import annotations

from sqlalchemy import Connection, and_, select, update

from perdure.domain.envelopes import Envelope
from perdure.domain.labels import Label
from perdure.domain.messages import Frozen, Role, Usage
from perdure.domain.runs import EndReason
from perdure.domain.states import TurnState
from perdure.domain.steps import StepOutcome
from perdure.store import mailbox
from perdure.store.database import Database
from perdure.store.delegation_tables import runs
from perdure.store.file_labels import raise_label
from perdure.store.runs import Run, get
from perdure.store.session_writer import SessionWriter
from perdure.store.tables import messages, sessions, steps, turns


class LastTurn(Frozen):
    """The newest turn of a run's conversation: how it ended, with which words, and which limit of
    the run ended it, if one did."""

    turn: int
    message_id: str
    state: TurnState
    text: str
    reached: EndReason | None = None


class Said(Frozen):
    """What a run has said, and the level of its session."""

    text: str
    label: Label


class RunOutcomes:
    """Reading and recording what runs come to."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def last_turn(self, session_key: str) -> LastTurn | None:
        """The newest turn that was not taken aside; None before the first."""
        return await self._database.read(_last_turn, session_key)

    async def said(self, run: Run) -> Said:
        """The last words that a run has committed, beside what ended its turns."""
        return await self._database.read(_said, run)

    async def repair(self, run_id: str, envelope: Envelope, text: str) -> None:
        """Lay down the message by which a run is told what is missing, once."""
        await self._database.write(_repair, run_id, envelope, text)

    async def will_write(self, session_key: str, path: str, label: Label) -> None:
        """Record the level of a file before it is written into a session's workspace."""
        await self._database.write(raise_label, session_key, path, label)

    async def spend(self, session_key: str, usage: Usage) -> None:
        """Count what a model call beside the conversation has used."""
        await self._database.write(_spend, session_key, usage)


def _last_turn(connection: Connection, session_key: str) -> LastTurn | None:
    row = connection.execute(
        select(turns, messages.c.text)
        .outerjoin(
            messages,
            and_(
                messages.c.session_key == turns.c.session_key,
                messages.c.id == turns.c.answer_id,
            ),
        )
        .where(turns.c.session_key == session_key, messages.c.aside.is_not(True))
        .order_by(turns.c.turn.desc())
        .limit(1)
    ).one_or_none()
    if row is None:
        return None
    outcome = connection.scalar(
        select(steps.c.outcome)
        .where(steps.c.session_key == session_key, steps.c.turn == row.turn)
        .order_by(steps.c.step.desc())
        .limit(1)
    )
    return LastTurn(
        turn=row.turn,
        message_id=row.message_id,
        state=row.state,
        text=row.text or "",
        reached=None if outcome is None else StepOutcome.model_validate(outcome).reached,
    )


def _said(connection: Connection, run: Run) -> Said:
    notices = select(turns.c.answer_id).where(
        turns.c.session_key == run.session_key,
        turns.c.state.in_((TurnState.FAILED, TurnState.INTERRUPTED)),
        turns.c.answer_id.is_not(None),
    )
    text = connection.scalar(
        select(messages.c.text)
        .where(
            messages.c.session_key == run.session_key,
            messages.c.role == Role.ASSISTANT,
            messages.c.text != "",
            messages.c.aside.is_(False),
            messages.c.id.not_in(notices),
        )
        .order_by(messages.c.seq.desc())
        .limit(1)
    )
    label = connection.scalar(
        select(sessions.c.label).where(sessions.c.session_key == run.session_key)
    )
    return Said(text=text or "", label=Label(label or Label.PUBLIC))


def _repair(connection: Connection, run_id: str, envelope: Envelope, text: str) -> None:
    run = get(connection, run_id)
    if not run.repairs:
        connection.execute(update(runs).where(runs.c.run_id == run_id).values(repairs=1))
    mailbox.post(connection, run.session_key, envelope, text)


def _spend(connection: Connection, session_key: str, usage: Usage) -> None:
    with SessionWriter(connection, session_key) as session:
        row = session.row
        total = usage + Usage(
            input_tokens=row.input_tokens, output_tokens=row.output_tokens, cost=row.cost
        )
        session.change(**total.model_dump())
