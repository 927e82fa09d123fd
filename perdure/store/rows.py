"""From rows to the facts they hold.

Invariant: no checks, since rows were checked when they were written and a context has hundreds.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from sqlalchemy import Row

from perdure.context.summaries import Summary
from perdure.domain.labels import Label
from perdure.domain.messages import Message, Role, ToolCall
from perdure.store.context_tables import FOREVER
from perdure.store.tables import messages

_ROLES = {str(role): role for role in Role}
_LABELS = {str(label): label for label in Label}
_FIELDS = tuple(Message.model_fields)
# By place: by name, a row's values take three times as long.
_taken = itemgetter(*(list(messages.c.keys()).index(name) for name in _FIELDS))


def message_of(row: Row[Any]) -> Message:
    """The message that a row of all columns of `messages` holds."""
    fields = dict(zip(_FIELDS, _taken(row), strict=True))
    fields["role"] = _ROLES[fields["role"]]
    fields["label"] = _LABELS[fields["label"]]
    fields["tool_calls"] = tuple(ToolCall.model_construct(**call) for call in fields["tool_calls"])
    message = Message.__new__(Message)
    # As unpickling makes it: `model_construct` takes five times as long.
    message.__setstate__(
        {
            "__dict__": fields,
            "__pydantic_fields_set__": set(_FIELDS),
            "__pydantic_extra__": None,
            "__pydantic_private__": None,
        }
    )
    return message


def summary_of(row: Row[Any]) -> Summary:
    """The summary that a row of `summaries` holds."""
    return Summary.model_construct(
        id=row.id,
        session_key=row.session_key,
        epoch=row.epoch,
        depth=row.depth,
        first_seq=row.first_seq,
        last_seq=row.last_seq,
        messages=row.messages,
        text=row.text,
        tokens=row.tokens,
        source_tokens=row.source_tokens,
        label=Label(row.label),
        earliest_at=row.earliest_at,
        latest_at=row.latest_at,
        fallback=row.fallback,
        from_turn=row.from_turn,
        until_turn=None if row.until_turn == FOREVER else row.until_turn,
    )
