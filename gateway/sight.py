"""Which sessions are there for one who asks, and what they read of a turn.

Invariant: every part of a `SessionClient` asks here, and nowhere else is it decided. What is not
there for a caller has one answer in every method: the one for what does not exist.
"""

from __future__ import annotations

from gateway.bounds import Bounds
from gateway.refusals import Refusals
from perdure.domain.errors import NotFound
from perdure.domain.keys import SessionKey
from perdure.domain.labels import Label, can_flow, join
from perdure.domain.states import EventKind
from perdure.shapes import ABOVE, readable_message
from perdure.store import Store
from perdure.store.outbox import Event
from perdure.store.readers import Reader
from perdure.store.sessions import SessionRow
from perdure.store.transcript import HistoryMessage, TurnResult

#: Events whose payload has words in it.
_TELLING = frozenset({EventKind.LABEL_RAISED, EventKind.STEP_RETRYING})


class Sight:
    """The store as one caller sees it."""

    def __init__(self, store: Store, bounds: Bounds, refusals: Refusals) -> None:
        self._store = store
        self.bounds = bounds
        self._refusals = refusals

    @property
    def level(self) -> Label:
        """The highest label of the words that they may be told."""
        return self.bounds.level

    @property
    def reader(self) -> Reader:
        """What queries are made for."""
        return self.bounds.reader

    async def session(self, session_key: str) -> SessionRow:
        """The session of this key.

        Raises:
            NotFound: when there is none for the caller.
        """
        SessionKey.parse(session_key)
        row = await self._store.views.row(self.reader, session_key)
        if row is None:
            await self.hides(session_key)
            raise no_session(session_key)
        return row

    async def hides(self, session_key: str) -> bool:
        """Whether a session is there and not for the caller, or could not be there for them. The
        audit trail is told why."""
        if self.reader.sees_all:
            return False
        why = None
        if self.reader.tenant not in (None, SessionKey.parse(session_key).tenant):
            why = "It would be another tenant's."
        elif await self._store.views.row(self.reader, session_key) is None:
            row = await self._store.sessions.get(session_key)
            if row is not None:
                why = f"It is {row.label}, and {self.level} is the highest they are told."
        if why is not None:
            self._refusals.note(self.bounds.signed(""), "session", why, session_key)
        return why is not None

    async def shown(self, event: Event) -> Event:
        """An event as the caller may be told it: what was failed of, and read, may be above them.

        Raises:
            NotFound: when its session has gone out of their sight with it.
        """
        if self.bounds.overseer or event.kind not in _TELLING:
            return event
        if event.kind is EventKind.LABEL_RAISED:
            if await self.hides(event.session_key):
                raise no_session(event.session_key)
            label = Label(event.payload["after"])
        else:
            row = await self._store.sessions.get(event.session_key)
            label = Label.PUBLIC if row is None else row.label
        if self.reads(label):
            return event
        payload = {**event.payload, "reason": ABOVE.format(label)}
        return event.model_copy(update={"payload": payload})

    async def check_message(self, session_key: str, label: Label) -> None:
        """Check that the caller may write to a session, new or not, what is `label`; from then on
        it is there for them.

        Raises:
            NotFound: when the session is not there for them.
            Denied: when the label is above their clearance.
        """
        caller, callers = self.reader.caller, self._store.session_callers
        if caller is not None and callers.remembers(session_key, caller):
            self.bounds.check_label(label)
            return
        if await self.hides(session_key):
            raise no_session(session_key)
        self.bounds.check_label(label)
        if caller is not None:
            await callers.note(session_key, caller)

    def reads(self, label: Label) -> bool:
        """Whether the caller may be told words of a label. A person at this machine is told an
        answer as it was judged on its way to them."""
        return self.bounds.overseer or can_flow(label, self.level)

    def readable_message(self, message: HistoryMessage) -> HistoryMessage:
        """A message of a turn as the caller may read it while it happens."""
        return message if self.reads(message.label) else readable_message(message, self.level)

    async def readable(self, result: TurnResult) -> TurnResult:
        """What a turn came to, as the caller may read it. An answer was judged on its way to a
        person at the gateway; for anyone with less clearance than that, here."""
        if self.bounds.overseer:
            return result
        label = result.label
        if result.error is not None:
            # An error has the level of the session that met with it.
            row = await self._store.sessions.get(result.session_key)
            label = join(label, row.label) if row else label
        if self.reads(label):
            return result
        withheld = ABOVE.format(label)
        error = result.error and {**result.error, "message": withheld, "hint": ""}
        return result.model_copy(update={"text": result.text and withheld, "error": error})


def no_session(session_key: str) -> NotFound:
    """That there is no session of this key."""
    return NotFound(
        f"There is no session {session_key}.", "`perdure sessions` lists what there is."
    )
