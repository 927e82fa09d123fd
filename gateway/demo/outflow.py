"""What left the sessions, who agreed to it, and what the audit trail has to say of it.

Invariant: read from the home alone, files of channels included, and nothing is changed; the trail
is verified with its key and its anchor, as `perdure audit verify` does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic_core import to_json
from sqlalchemy import Connection, select

from perdure.audit import Report
from perdure.channels.urls import JsonLines
from perdure.config import Settings
from perdure.domain.approvals import Approval
from perdure.domain.labels import Label
from perdure.domain.messages import Frozen
from perdure.domain.states import DeliveryState
from perdure.store import Store
from perdure.store.audit import verify
from perdure.store.tables import approvals, audit, deliveries, events, messages


class Place(Frozen):
    """Where text has come to, and the highest label that may be there."""

    name: str
    level: Label
    content: bytes


class Delivery(Frozen):
    """A row of the delivery ledger. `level` is what may flow to channel and recipient."""

    session_key: str
    turn: int | None
    step: int | None
    delivery_id: str
    channel: str
    label: Label
    level: Label
    state: DeliveryState


class Decided(Frozen):
    """What an entry of the audit trail says was decided."""

    seq: int
    hook: str
    session_key: str
    turn: int | None
    step: int | None
    decision: str
    decided_by: str


class Outflow(Frozen):
    """All that the checks of labels, approvals and audit look at."""

    #: The text that may not come to a place below `level`.
    secret: str
    level: Label
    #: The files of channels, by the names of the channels.
    channels: dict[str, Place]
    #: Everything else that the home holds for others to read.
    places: tuple[Place, ...]
    #: What may be answered to who asks.
    answers: Label
    deliveries: tuple[Delivery, ...]
    approvals: tuple[Approval, ...]
    decisions: tuple[Decided, ...]
    #: What verifying the audit trail found.
    trail: Report


async def gather_outflow(store: Store, settings: Settings, secret: str) -> Outflow:
    """What the home of `settings` says of everything that left, and of `secret`."""
    rows = await store.database.read(_rows)
    return Outflow(
        secret=secret,
        level=Label.CONFIDENTIAL,
        channels=_channels(settings),
        answers=settings.gateway.level,
        trail=await verify(store.database, settings.audit_files),
        **rows,
    )


def _channels(settings: Settings) -> dict[str, Place]:
    """What lies in the files of `file:` channels."""
    found = {}
    for name, channel in settings.channels.items():
        if isinstance(target := channel.target, JsonLines):
            path = Path(settings.home, target.path)
            content = path.read_bytes() if path.exists() else b""
            found[name] = Place(name=name, level=channel.level, content=content)
    return found


def _rows(connection: Connection) -> dict[str, Any]:
    return {
        "places": (*_transcripts(connection), _outbox(connection)),
        "deliveries": tuple(
            Delivery(**{name: row[name] for name in Delivery.model_fields})
            for row in connection.execute(select(deliveries)).mappings()
        ),
        "approvals": tuple(
            Approval.model_validate(dict(row))
            for row in connection.execute(select(approvals)).mappings()
        ),
        "decisions": tuple(
            Decided(**{name: row[name] for name in Decided.model_fields})
            for row in connection.execute(select(audit).order_by(audit.c.seq)).mappings()
        ),
    }


def _transcripts(connection: Connection) -> list[Place]:
    """The transcripts, each as several places: one for every label that its messages have."""
    said: dict[tuple[str, Label], list[bytes]] = {}
    for row in connection.execute(select(messages)):
        words = to_json([row.text, row.tool_calls])
        said.setdefault((row.session_key, Label(row.label)), []).append(words)
    return [
        Place(name=f"transcript of {key}", level=level, content=b"\n".join(words))
        for (key, level), words in said.items()
    ]


def _outbox(connection: Connection) -> Place:
    """The events, which tell whoever follows a session what happens there."""
    payloads = connection.scalars(select(events.c.payload))
    content = b"\n".join(to_json(payload) for payload in payloads)
    return Place(name="outbox", level=Label.PUBLIC, content=content)
