"""One transaction's work on one session: its row read once, written once, its events with it.

Invariant: there is no other way to append a message or to write an event, so both always go with
the change they belong to. Sequence numbers rise by one a message, with one kept free for each
tool call's result: results stand behind their call in call order, whichever comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

from sqlalchemy import Connection, Row, bindparam, insert, select, update

from perdure.context import message_tokens
from perdure.domain.labels import Label, join
from perdure.domain.messages import ToolCall
from perdure.domain.states import EventKind
from perdure.store.clock import now
from perdure.store.tables import events, messages, sessions

#: Statements are built once: building them anew costs more than running them.
_READ = select(sessions).where(sessions.c.session_key == bindparam("key"))
_CHANGED = (
    "state",
    "label",
    "epoch",
    "turn",
    "next_seq",
    "message_count",
    "step_count",
    "input_tokens",
    "output_tokens",
    "cost",
    "last_activity",
)
_WRITE = (
    update(sessions)
    .where(sessions.c.session_key == bindparam("key"))
    .values({name: bindparam(f"new_{name}") for name in _CHANGED})
)
_ADD_MESSAGE = insert(messages)
_ADD_EVENTS = insert(events)


class SessionWriter:
    """Use it as a context manager; leaving the block writes what was gathered.

    `row` is the session as the transaction found it.
    """

    def __init__(self, connection: Connection, session_key: str) -> None:
        self.connection = connection
        self.key = session_key
        self.row: Row[Any] = connection.execute(_READ, {"key": session_key}).one()
        self._changes: dict[str, Any] = {}
        self._events: list[dict[str, Any]] = []
        self._next_seq = int(self.row.next_seq)
        self._message_count = int(self.row.message_count)

    def __enter__(self) -> SessionWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            return
        row = {
            **self.row._mapping,
            **self._changes,
            "last_activity": now(),
            "next_seq": self._next_seq,
            "message_count": self._message_count,
        }
        new = {f"new_{name}": row[name] for name in _CHANGED}
        self.connection.execute(_WRITE, {"key": self.key, **new})
        if self._events:
            self.connection.execute(_ADD_EVENTS, self._events)

    @property
    def message_count(self) -> int:
        """How many messages the session has, with those appended here."""
        return self._message_count

    def change(self, **columns: Any) -> None:
        """Set columns of the session's row, of those that change."""
        self._changes |= columns

    def tell(
        self, kind: EventKind, *, turn: int | None = None, step: int | None = None, **payload: Any
    ) -> None:
        """Write an event. Its payload holds ids, names and numbers, never conversation text."""
        self._events.append(
            {
                "session_key": self.key,
                "kind": kind,
                "turn": turn,
                "step": step,
                "payload": payload,
                "at": now(),
            }
        )

    def raise_label(self, label: Label, *, turn: int, reason: str) -> None:
        """Record that the session has taken in what is `label`; it never falls here."""
        current = Label(self._changes.get("label", self.row.label))
        raised = join(current, label)
        if raised is not current:
            self.change(label=raised)
            self.tell(
                EventKind.LABEL_RAISED, turn=turn, before=current, after=raised, reason=reason
            )

    def append(self, *, text: str, tool_calls: Sequence[ToolCall] = (), **message: Any) -> int:
        """Append a message to the transcript; its sequence number."""
        seq = self._next_seq
        self._next_seq += 1 + len(tool_calls)
        self._insert(seq, self.row.epoch, text, tool_calls, message)
        return seq

    def fill(self, seq: int, epoch: int, *, text: str, **message: Any) -> None:
        """Put a tool result into the place kept for it."""
        self._insert(seq, epoch, text, (), message)

    def _insert(
        self,
        seq: int,
        epoch: int,
        text: str,
        tool_calls: Sequence[ToolCall],
        message: dict[str, Any],
    ) -> None:
        self._message_count += 1
        self.connection.execute(
            _ADD_MESSAGE,
            {
                "from_session": None,
                "tool_call_id": None,
                "tool_name": None,
                "raw": None,
                "exchange": None,
                "aside": False,
                **message,
                "session_key": self.key,
                "seq": seq,
                "epoch": epoch,
                "text": text,
                "tokens": message_tokens(text, tool_calls),
                "tool_calls": [call.model_dump(mode="json") for call in tool_calls],
                "at": now(),
            },
        )
