"""What became of the messages that were sent, read from the store."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, func, select
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from activities.post import workflow_id
from perdure.domain.messages import Role
from perdure.domain.states import TurnState
from perdure.store.tables import messages, steps, turns
from tests.support.stack import Stack, until


@dataclass(frozen=True)
class Said:
    """One message of a transcript."""

    seq: int
    turn: int
    role: str
    id: str
    text: str


@dataclass(frozen=True)
class Answered:
    """One turn: the message it took, how it ended, and what it answered."""

    turn: int
    message_id: str
    state: str
    text: str | None
    attempts: int


async def turns_of(stack: Stack, key: str) -> list[Answered]:
    """Every turn of a session, in order."""

    def query(connection: Connection) -> list[Answered]:
        texts = dict(
            connection.execute(
                select(messages.c.id, messages.c.text).where(messages.c.session_key == key)
            ).all()
        )
        attempts: dict[int, int] = {}
        for row in connection.execute(select(steps).where(steps.c.session_key == key)):
            attempts[row.turn] = attempts.get(row.turn, 0) + row.attempts
        return [
            Answered(
                turn=row.turn,
                message_id=row.message_id,
                state=row.state,
                text=texts.get(row.answer_id),
                attempts=attempts.get(row.turn, 0),
            )
            for row in connection.execute(
                select(turns).where(turns.c.session_key == key).order_by(turns.c.turn)
            )
        ]

    return await stack.client.store.database.read(query)


async def said(stack: Stack, key: str) -> list[Said]:
    """The whole transcript of a session, in order."""

    def query(connection: Connection) -> list[Said]:
        rows = connection.execute(
            select(messages).where(messages.c.session_key == key).order_by(messages.c.seq)
        )
        return [Said(row.seq, row.turn, row.role, row.id, row.text) for row in rows]

    return await stack.client.store.database.read(query)


async def all_ended(stack: Stack, key: str, count: int, timeout: float = 120) -> None:
    """Wait until `count` turns of a session have ended and none is under way."""

    def query(connection: Connection) -> tuple[int, int]:
        states = select(turns.c.state, func.count()).where(turns.c.session_key == key)
        found = dict(connection.execute(states.group_by(turns.c.state)).all())
        return found.pop(TurnState.RUNNING, 0), sum(found.values())

    async def ended() -> bool:
        running, over = await stack.client.store.database.read(query)
        return running == 0 and over >= count

    await until(ended, timeout)


async def assert_answered_once(stack: Stack, key: str, sent: Collection[str]) -> None:
    """Each message of `sent`, by id, was taken by one turn that completed, and nothing else was;
    the transcript is question, answer, question, answer."""
    answered = await turns_of(stack, key)
    taken = [turn.message_id for turn in answered]
    assert sorted(taken) == sorted(sent), _difference(taken, sent)
    assert {turn.state for turn in answered} <= {TurnState.COMPLETED}
    assert await stack.client.store.mailbox.count(key) == 0
    transcript = await said(stack, key)
    assert [(entry.turn, entry.role) for entry in transcript] == [
        (turn.turn, role) for turn in answered for role in (Role.USER, Role.ASSISTANT)
    ]
    assert [entry.id for entry in transcript if entry.role == Role.USER] == taken


def _difference(taken: Sequence[str], sent: Collection[str]) -> str:
    lost = sorted(set(sent) - set(taken))
    doubled = sorted({message_id for message_id in taken if taken.count(message_id) > 1})
    strange = sorted(set(taken) - set(sent))
    return f"lost {lost[:10]}, doubled {doubled[:10]}, not sent {strange[:10]}"


async def runs_of(stack: Stack, key: str) -> list[list[HistoryEvent]]:
    """The histories of a session's runs since it was last opened, oldest first."""
    runs: list[list[HistoryEvent]] = []
    run_id: str | None = None
    while run_id != "":
        handle = stack.client.temporal.get_workflow_handle(workflow_id(key), run_id=run_id)
        runs.insert(0, list((await handle.fetch_history()).events))
        started = runs[0][0].workflow_execution_started_event_attributes
        run_id = started.continued_execution_run_id
    return runs


def count(events: Sequence[HistoryEvent], kind: str) -> int:
    """How many events of a type, such as `ACTIVITY_TASK_SCHEDULED`, a history has."""
    return sum(EventType.Name(event.event_type) == f"EVENT_TYPE_{kind}" for event in events)
