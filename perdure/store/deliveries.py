"""The delivery ledger: written before a message leaves and after, so that a crash between shows.

Invariant: one cause has one delivery id and one outcome, whoever retries. What may have left is
sent again only for who asked for at-least-once, and then under the same delivery id. An outcome
only ever becomes more certain that the message left: failed, unknown, sent, confirmed.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field
from sqlalchemy import Connection, Row, insert, select, update

from perdure.domain.errors import Conflict
from perdure.domain.ids import new_delivery_id
from perdure.domain.labels import Label
from perdure.domain.messages import Frozen
from perdure.domain.states import DeliveryState, EventKind
from perdure.store.clock import now
from perdure.store.database import Database
from perdure.store.session_writer import SessionWriter
from perdure.store.tables import deliveries

_EVENTS = {
    DeliveryState.BEGUN: EventKind.DELIVERY_BEGUN,
    DeliveryState.SENT: EventKind.DELIVERY_SENT,
    DeliveryState.CONFIRMED: EventKind.DELIVERY_SENT,
    DeliveryState.FAILED: EventKind.DELIVERY_FAILED,
    DeliveryState.UNKNOWN: EventKind.DELIVERY_UNKNOWN,
    DeliveryState.WITHHELD: EventKind.DELIVERY_WITHHELD,
}

#: How sure each state is that the message left; an outcome never falls back.
_CERTAINTY = (
    DeliveryState.BEGUN,
    DeliveryState.FAILED,
    DeliveryState.UNKNOWN,
    DeliveryState.SENT,
    DeliveryState.CONFIRMED,
)

#: What is told of a delivery whose process died.
_DIED = "Its process died before it could report; the message may or may not have left."


class Dispatch(Frozen):
    """What is to leave: why, where to, under which label, and which text, by its hash.

    `cause` is what asks for it, the same at every retry: a tool call's `turn/step/call`, or the
    name of an announcement. `level` is the highest label that may flow there.
    """

    session_key: str
    cause: str = Field(min_length=1, max_length=128)
    turn: int | None = None
    step: int | None = None
    channel: str
    recipient: str
    label: Label
    level: Label
    text_sha256: str
    text_bytes: int


class Entry(Frozen):
    """A delivery as the ledger has it.

    `begun` in an answer of `begin` means: deliver now, then settle. `doubtful` says that an
    earlier attempt may have delivered it already.
    """

    delivery_id: str
    state: DeliveryState
    reason: str | None = None
    attempts: int = 0
    doubtful: bool = False


class Deliveries:
    """The writes of the ledger."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def begin(self, dispatch: Dispatch, *, repeat: bool) -> Entry:
        """Record that the message is about to leave, unless it is settled whether it did.

        `repeat`: a message that may have left already is begun again; otherwise it is unknown.

        Raises:
            Conflict: the same cause was recorded with another text, channel or recipient.
        """
        return await self._database.write(_begin, dispatch, repeat)

    async def withhold(self, dispatch: Dispatch, reason: str) -> Entry:
        """Record that the message does not leave; what is recorded already stands.

        Raises:
            Conflict: as `begin`.
        """
        return await self._database.write(_withhold, dispatch, reason)

    async def settle(
        self, dispatch: Dispatch, begun: Entry, state: DeliveryState, reason: str | None = None
    ) -> Entry:
        """Record what became of the attempt that `begin` answered with `begun`.

        Returns what is recorded then: another attempt may know better.
        """
        return await self._database.write(_settle, dispatch, begun, state, reason)

    async def of(self, session_key: str, cause: str) -> Entry | None:
        """The delivery of a cause, if the ledger has one."""
        return await self._database.read(_entry_of, session_key, cause)


def _begin(connection: Connection, dispatch: Dispatch, repeat: bool) -> Entry:
    known = _known(connection, dispatch)
    if known is None:
        return _insert(connection, dispatch, DeliveryState.BEGUN)
    state = DeliveryState(known.state)
    doubtful = state in (DeliveryState.BEGUN, DeliveryState.UNKNOWN)
    if state is DeliveryState.FAILED or (doubtful and repeat):
        return _move(connection, dispatch, known, DeliveryState.BEGUN, doubtful=doubtful)
    if state is DeliveryState.BEGUN:
        return _move(connection, dispatch, known, DeliveryState.UNKNOWN, _DIED)
    return _entry(known)


def _withhold(connection: Connection, dispatch: Dispatch, reason: str) -> Entry:
    known = _known(connection, dispatch)
    if known is None:
        return _insert(connection, dispatch, DeliveryState.WITHHELD, reason)
    state = DeliveryState(known.state)
    if state is DeliveryState.BEGUN:
        return _move(connection, dispatch, known, DeliveryState.UNKNOWN, _DIED)
    if state is DeliveryState.FAILED:
        return _move(connection, dispatch, known, DeliveryState.WITHHELD, reason)
    return _entry(known)


def _settle(
    connection: Connection,
    dispatch: Dispatch,
    begun: Entry,
    state: DeliveryState,
    reason: str | None,
) -> Entry:
    known = connection.execute(select(deliveries).where(*_is(dispatch))).one()
    recorded = DeliveryState(known.state)
    if recorded not in _CERTAINTY or _CERTAINTY.index(recorded) >= _CERTAINTY.index(state):
        return _entry(known)
    if state is DeliveryState.FAILED and known.attempts > begun.attempts:
        # A newer attempt is under way, and this one speaks only for itself.
        return _entry(known)
    return _move(connection, dispatch, known, state, reason)


def _known(connection: Connection, dispatch: Dispatch) -> Row[Any] | None:
    known = connection.execute(select(deliveries).where(*_is(dispatch))).one_or_none()
    same = ("channel", "recipient", "text_sha256")
    if known is not None and any(getattr(known, one) != getattr(dispatch, one) for one in same):
        raise Conflict(
            f"The delivery {known.delivery_id} was recorded with another text, channel or "
            "recipient.",
            "Send it as a new message.",
        )
    return known


def _insert(
    connection: Connection, dispatch: Dispatch, state: DeliveryState, reason: str | None = None
) -> Entry:
    entry = Entry(
        delivery_id=new_delivery_id(),
        state=state,
        reason=reason,
        attempts=int(state is DeliveryState.BEGUN),
    )
    connection.execute(
        insert(deliveries).values(
            **dispatch.model_dump(),
            **entry.model_dump(exclude={"doubtful"}),
            begun_at=now(),
            settled_at=None if state is DeliveryState.BEGUN else now(),
        )
    )
    _tell(connection, dispatch, entry)
    return entry


def _move(
    connection: Connection,
    dispatch: Dispatch,
    known: Row[Any],
    state: DeliveryState,
    reason: str | None = None,
    *,
    doubtful: bool = False,
) -> Entry:
    again = state is DeliveryState.BEGUN
    entry = Entry(
        delivery_id=known.delivery_id,
        state=state,
        reason=reason,
        attempts=known.attempts + again,
        doubtful=doubtful,
    )
    connection.execute(
        update(deliveries)
        .where(*_is(dispatch))
        .values(
            state=state,
            reason=reason,
            attempts=entry.attempts,
            settled_at=None if again else now(),
        )
    )
    # A confirmation of what was told as sent is no news.
    if known.state != DeliveryState.SENT:
        _tell(connection, dispatch, entry)
    return entry


def _tell(connection: Connection, dispatch: Dispatch, entry: Entry) -> None:
    # The recipient stays in the ledger: a model chooses its name, and could write anything there.
    with SessionWriter(connection, dispatch.session_key) as session:
        session.tell(
            _EVENTS[entry.state],
            turn=dispatch.turn,
            step=dispatch.step,
            delivery_id=entry.delivery_id,
            channel=dispatch.channel,
            attempt=entry.attempts,
        )


def _entry_of(connection: Connection, session_key: str, cause: str) -> Entry | None:
    row = connection.execute(
        select(deliveries).where(
            deliveries.c.session_key == session_key, deliveries.c.cause == cause
        )
    ).one_or_none()
    return None if row is None else _entry(row)


def _entry(row: Row[Any]) -> Entry:
    return Entry(
        delivery_id=row.delivery_id,
        state=DeliveryState(row.state),
        reason=row.reason,
        attempts=row.attempts,
    )


def _is(dispatch: Dispatch) -> tuple[Any, ...]:
    return (
        deliveries.c.session_key == dispatch.session_key,
        deliveries.c.cause == dispatch.cause,
    )
