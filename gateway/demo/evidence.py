"""Evidence: what the store, Temporal's history and the notice board say after the story.

Invariant: facts as they were found, in one consistent view of the store. Judging them is for
`gateway.demo.checks`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, Table, select

from activities.post import workflow_id
from gateway.client import SessionClient
from gateway.demo.outflow import Outflow, gather_outflow
from gateway.demo.story import LEAD
from perdure.config import Settings
from perdure.domain.labels import Label
from perdure.domain.messages import Frozen, Role, ToolCall
from perdure.domain.states import EventKind, ToolStatus, TurnState
from perdure.store import Store
from perdure.store.outbox import Event
from perdure.store.tables import (
    events,
    mailbox,
    messages,
    sessions,
    steps,
    tool_claims,
    turns,
)

#: The activity in which a model is called, as Temporal's history names it.
_MODEL_STEP = "take_step"


class Sent(Frozen):
    """A message that was sent, `times` times under the same id."""

    session_key: str
    message_id: str
    text: str
    times: int = 1


class Kill(Frozen):
    """Processes that got SIGKILL, and when the first and the last of them did."""

    what: str
    began: datetime
    ended: datetime
    #: Whose work it was to cut.
    session_key: str = LEAD


class Turn(Frozen):
    """A turn of the store: the message it took, how it ended, its answer."""

    session_key: str
    turn: int
    message_id: str
    state: TurnState
    answer_id: str | None


class Step(Frozen):
    """A model step of the store. `attempts` counts model calls begun, `reused` the times that a
    committed answer was taken instead."""

    session_key: str
    turn: int
    step: int
    attempts: int
    reused: int
    committed: bool
    tokens: int


class Call(Frozen):
    """A tool call of the store. `claims` counts its attempts; no `status` is no report."""

    session_key: str
    turn: int
    step: int
    call: int
    tool: str
    status: ToolStatus | None
    claims: int

    @property
    def key(self) -> str:
        """The idempotency key that the tool was given."""
        return f"{self.session_key}/{self.turn}/{self.step}/{self.call}"


class Said(Frozen):
    """A message of a transcript."""

    session_key: str
    seq: int
    id: str
    turn: int
    step: int
    role: Role
    text: str
    tool_calls: tuple[ToolCall, ...]
    label: Label


class Run(Frozen):
    """A workflow run in Temporal: its history, whole, as the server serialises it."""

    session_key: str
    events: int
    size: int
    #: Model steps that were scheduled.
    model_steps: int
    raw: bytes


class Evidence(Frozen):
    """All that the checks look at."""

    sent: tuple[Sent, ...]
    kills: tuple[Kill, ...]
    turns: tuple[Turn, ...]
    steps: tuple[Step, ...]
    calls: tuple[Call, ...]
    said: tuple[Said, ...]
    events: tuple[Event, ...]
    #: Ids that still lie in the mailbox.
    waiting: tuple[str, ...]
    #: Tokens that the sessions have counted in all.
    tokens: int
    runs: tuple[Run, ...]
    #: For each notice on the board, the key of the call that put it there.
    notices: tuple[str, ...]
    #: Tools whose effect must not be repeated.
    once: frozenset[str]
    #: What left, who agreed to it, and what the audit trail says.
    outflow: Outflow


async def gather(
    client: SessionClient,
    *,
    sent: Sequence[Sent],
    kills: Sequence[Kill] = (),
    notices: Sequence[str] = (),
    once: Collection[str] = (),
    secret: str = "",
) -> Evidence:
    """The evidence of the sessions to which `sent` were sent; `secret` is what must not leave."""
    found = await gather_stored(client.store, client.settings, sent, secret)
    runs = [run for key in _keys(sent) for run in await _runs(client, key)]
    return found.model_copy(
        update={
            "kills": tuple(kills),
            "runs": tuple(runs),
            "notices": tuple(notices),
            "once": frozenset(once),
        }
    )


async def gather_stored(
    store: Store, settings: Settings, sent: Sequence[Sent], secret: str = ""
) -> Evidence:
    """What the home alone says, also when nothing runs on it any more."""
    stored = await store.database.read(_stored, _keys(sent))
    return Evidence(
        sent=tuple(sent),
        kills=(),
        runs=(),
        notices=(),
        once=frozenset(),
        outflow=await gather_outflow(store, settings, secret),
        **stored,
    )


def _keys(sent: Sequence[Sent]) -> list[str]:
    return sorted({each.session_key for each in sent})


def _stored(connection: Connection, keys: Sequence[str]) -> dict[str, Any]:
    def rows(table: Table) -> list[Row[Any]]:
        query = select(table).where(table.c.session_key.in_(keys)).order_by(*table.primary_key)
        return list(connection.execute(query))

    return {
        "turns": tuple(Turn(**_fields(row, Turn)) for row in rows(turns)),
        "steps": tuple(
            Step(
                **_fields(row, Step, "committed", "tokens"),
                committed=row.outcome is not None,
                tokens=row.input_tokens + row.output_tokens,
            )
            for row in rows(steps)
        ),
        "calls": tuple(Call(**_fields(row, Call)) for row in rows(tool_claims)),
        "said": tuple(Said(**_fields(row, Said)) for row in rows(messages)),
        "events": tuple(Event(**dict(row._mapping)) for row in rows(events)),
        "waiting": tuple(row.message_id for row in rows(mailbox)),
        "tokens": sum(row.input_tokens + row.output_tokens for row in rows(sessions)),
    }


def _fields(row: Row[Any], model: type[Frozen], *computed: str) -> dict[str, Any]:
    return {name: row._mapping[name] for name in model.model_fields if name not in computed}


async def _runs(client: SessionClient, key: str) -> list[Run]:
    found = []
    async for run in client.temporal.list_workflows(f"WorkflowId = '{workflow_id(key)}'"):
        handle = client.temporal.get_workflow_handle(run.id, run_id=run.run_id)
        history = (await handle.fetch_history()).events
        info = (await handle.describe()).raw_description.workflow_execution_info
        found.append(
            Run(
                session_key=key,
                events=len(history),
                size=info.history_size_bytes,
                model_steps=sum(
                    event.activity_task_scheduled_event_attributes.activity_type.name == _MODEL_STEP
                    for event in history
                ),
                raw=b"\n".join(event.SerializeToString() for event in history),
            )
        )
    return found


def times_of(evidence: Evidence, kind: EventKind) -> list[Event]:
    """The events of a kind, in the order in which they happened."""
    return [event for event in evidence.events if event.kind is kind]
