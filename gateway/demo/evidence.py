"""Evidence: what the store, Temporal's history and the workspaces say after the story.

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
from gateway.demo.delegated import Delegation, gather_delegation
from gateway.demo.outflow import Outflow, gather_outflow
from gateway.demo.recollection import Recollection, gather_recollection
from perdure.config import Settings
from perdure.domain.labels import Label
from perdure.domain.messages import Frozen, Role, ToolCall
from perdure.domain.states import EventKind, ToolStatus, TurnState
from perdure.store import Store
from perdure.store.context_tables import sweeps
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
    #: The sessions that were at work, or waited.
    session_keys: tuple[str, ...]


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
    tool_name: str | None
    from_session: str | None
    label: Label


class History(Frozen):
    """A workflow run in Temporal: its history, whole, as the server serialises it."""

    session_key: str
    events: int
    size: int
    #: Model steps that were scheduled.
    model_steps: int
    raw: bytes


class Evidence(Frozen):
    """All that the checks look at."""

    #: Whether it was told by directives, so that what is said is known word for word.
    rehearsed: bool
    sent: tuple[Sent, ...]
    kills: tuple[Kill, ...]
    turns: tuple[Turn, ...]
    steps: tuple[Step, ...]
    calls: tuple[Call, ...]
    said: tuple[Said, ...]
    events: tuple[Event, ...]
    #: Ids that still lie in the mailbox.
    waiting: tuple[str, ...]
    #: Tokens that each session has counted, in steps and for summaries.
    tokens: dict[str, int]
    #: The sessions of which there are summaries.
    summarised: frozenset[str]
    histories: tuple[History, ...]
    #: For each notice on the board, the key of the call that put it there.
    notices: tuple[str, ...]
    #: Tools whose effect must not be repeated.
    once: frozenset[str]
    #: What left, who agreed to it, and what the audit trail says.
    outflow: Outflow
    #: What was delegated, and what came of it.
    delegation: Delegation
    #: What became of the long conversation.
    recollection: Recollection


async def gather(
    client: SessionClient,
    *,
    sent: Sequence[Sent],
    kills: Sequence[Kill] = (),
    notices: Sequence[str] = (),
    once: Collection[str] = (),
    secret: str = "",
    rehearsed: bool = True,
) -> Evidence:
    """The evidence of the sessions to which `sent` were sent; `secret` is what must not leave."""
    found = await gather_stored(client.store, client.settings, sent, secret)
    keys = {step.session_key for step in found.steps}
    histories = [history for key in sorted(keys) for history in await _histories(client, key)]
    return found.model_copy(
        update={
            "rehearsed": rehearsed,
            "kills": tuple(kills),
            "histories": tuple(histories),
            "notices": tuple(notices),
            "once": frozenset(once),
        }
    )


async def gather_stored(
    store: Store, settings: Settings, sent: Sequence[Sent], secret: str = ""
) -> Evidence:
    """What the home alone says, also when nothing runs on it any more."""
    asked = sorted({each.session_key for each in sent})
    delegation = await gather_delegation(store, settings, asked)
    keys = {*asked, *(run.session_key for run in delegation.runs)}
    return Evidence(
        rehearsed=True,
        sent=tuple(sent),
        kills=(),
        histories=(),
        notices=(),
        once=frozenset(),
        outflow=await gather_outflow(store, settings, secret),
        delegation=delegation,
        recollection=await gather_recollection(store),
        **await store.database.read(_stored, keys),
    )


def _stored(connection: Connection, keys: Collection[str]) -> dict[str, Any]:
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
        "tokens": {row.session_key: row.input_tokens + row.output_tokens for row in rows(sessions)},
        "summarised": frozenset(row.session_key for row in rows(sweeps)),
    }


def _fields(row: Row[Any], model: type[Frozen], *computed: str) -> dict[str, Any]:
    return {name: row._mapping[name] for name in model.model_fields if name not in computed}


async def _histories(client: SessionClient, key: str) -> list[History]:
    found = []
    async for run in client.temporal.list_workflows(f"WorkflowId = '{workflow_id(key)}'"):
        handle = client.temporal.get_workflow_handle(run.id, run_id=run.run_id)
        history = (await handle.fetch_history()).events
        info = (await handle.describe()).raw_description.workflow_execution_info
        found.append(
            History(
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
