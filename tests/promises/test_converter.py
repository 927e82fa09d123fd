"""Promise 18: what workflows, activities and clients say to each other arrives as it was sent.

The converter is the one that workers and clients are built with, `gateway.connection.connect`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from perdure.domain.envelopes import WAITING_BYTES, Envelope, Sender, SenderKind, Ticket
from perdure.domain.errors import Code, LimitExceeded, Refusal
from perdure.domain.labels import Label
from perdure.domain.states import ToolStatus, TurnState
from perdure.domain.steps import (
    Lane,
    OpenSession,
    PlannedCall,
    SessionClose,
    SessionProfile,
    SessionReset,
    StepOutcome,
    StepRequest,
    ToolOutcome,
    ToolRequest,
    TurnEnd,
)
from tests.support.stack import Stack
from workflows.inbox import WINDOW, Inbox
from workflows.state import CurrentTurn, SessionState, SessionStatus

converter = pydantic_data_converter.payload_converter

words = st.text(max_size=30)
ids = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=128)
numbers = st.integers(0, 2**53)
seconds = st.floats(0, 1e9, allow_nan=False)
labels = st.sampled_from(Label)
senders = st.builds(Sender, kind=st.sampled_from(SenderKind), id=st.text(min_size=1, max_size=512))
envelopes = st.builds(Envelope, message_id=ids, sender=senders, label=labels)
refusals = st.builds(Refusal, code=st.sampled_from(Code), message=words, hint=words)
resets = st.builds(
    SessionReset, session_key=words, request_id=words, dropped=st.lists(ids, max_size=5).map(tuple)
)
currents = st.builds(
    CurrentTurn, turn=numbers, step=numbers, envelope=envelopes, interrupted=st.booleans()
)
planned = st.builds(
    PlannedCall, call=numbers, tool=words, lane=st.sampled_from(Lane), timeout=seconds
)
requests = {
    "session_key": words,
    "agent": words,
    "turn": numbers,
    "step": numbers,
    "label": labels,
}

CONTRACT: dict[type[BaseModel], st.SearchStrategy[Any]] = {
    Envelope: envelopes,
    Ticket: st.builds(
        Ticket, message_id=ids, session_key=words, position=numbers, duplicate=st.booleans()
    ),
    SessionState: st.builds(
        SessionState,
        session_key=words,
        agent=words,
        opened=st.booleans(),
        turn=numbers,
        label=labels,
        inbox=st.lists(envelopes, max_size=5),
        seen=st.lists(ids, max_size=5),
        current=st.none() | currents,
        resets=st.lists(resets, max_size=3),
        closing=st.booleans(),
        inbox_limit=numbers,
        clearance=labels,
    ),
    SessionStatus: st.builds(
        SessionStatus,
        session_key=words,
        agent=words,
        state=words,
        turn=numbers,
        step=numbers,
        inbox=numbers,
        label=labels,
    ),
    OpenSession: st.builds(OpenSession, session_key=words, agent=words, fresh=st.booleans()),
    SessionProfile: st.builds(
        SessionProfile,
        agent=words,
        turn=numbers,
        label=labels,
        clearance=labels,
        pending=st.lists(envelopes, max_size=5).map(tuple),
        inbox_limit=numbers,
        turns_per_run=numbers,
        step_attempts=numbers,
        step_timeout=seconds,
    ),
    StepRequest: st.builds(StepRequest, message_id=ids, **requests),
    StepOutcome: st.builds(
        StepOutcome,
        calls=st.lists(planned, max_size=5).map(tuple),
        ended=st.none() | st.sampled_from(TurnState),
        error=st.none() | st.sampled_from(Code),
    ),
    ToolRequest: st.builds(ToolRequest, call=numbers, **requests),
    ToolOutcome: st.builds(ToolOutcome, status=st.sampled_from(ToolStatus)),
    TurnEnd: st.builds(
        TurnEnd,
        session_key=words,
        turn=numbers,
        message_id=ids,
        state=st.sampled_from(TurnState),
        reason=refusals,
        label=labels,
    ),
    SessionReset: resets,
    SessionClose: st.builds(SessionClose, session_key=words),
    Refusal: refusals,
}


def arrived(value: Any, kind: Any) -> Any:
    """`value` as the other side gets it."""
    return converter.from_payloads(converter.to_payloads([value]), [kind])[0]


@pytest.mark.parametrize("kind", CONTRACT, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_every_message_of_the_contract_round_trips(
    kind: type[BaseModel], data: st.DataObject
) -> None:
    value = data.draw(CONTRACT[kind])
    back = arrived(value, kind)
    assert back == value
    assert type(back) is kind
    # Enums come back as enums, tuples as tuples.
    assert repr(back) == repr(value)


def test_clients_and_workers_use_this_converter(stack: Stack) -> None:
    temporal: Client = stack.client.temporal
    assert temporal.data_converter.payload_converter_class is (
        pydantic_data_converter.payload_converter_class
    )


class Meeting(BaseModel):
    type: Literal["meeting"] = "meeting"
    at: datetime
    lasts: timedelta | None = None


class Reminder(BaseModel):
    type: Literal["reminder"] = "reminder"
    at: datetime | None
    text: str | int | list[str]


Entry = Annotated[Meeting | Reminder, Field(discriminator="type")]


class Diary(BaseModel):
    """What the contract may come to hold: moments, unions, discriminators."""

    entries: list[Entry]
    by_day: dict[str, tuple[Entry, ...]] = {}


zones = st.sampled_from(
    [UTC, timezone(timedelta(hours=5, minutes=30)), timezone(-timedelta(hours=8))]
)
moments = st.datetimes(timezones=zones)
entries = st.builds(
    Meeting, at=moments, lasts=st.none() | st.timedeltas(timedelta(), timedelta(days=99))
) | st.builds(
    Reminder, at=st.none() | moments, text=words | st.integers(-(2**53), 2**53) | st.lists(words)
)


@given(
    st.builds(
        Diary,
        entries=st.lists(entries, max_size=4),
        by_day=st.dictionaries(words, st.lists(entries, max_size=2).map(tuple), max_size=2),
    )
)
def test_datetimes_unions_and_discriminators_round_trip(diary: Diary) -> None:
    back = arrived(diary, Diary)
    assert back == diary
    for was, now in zip(diary.entries, back.entries, strict=True):
        assert type(now) is type(was)
        if was.at is not None:
            assert now.at.utcoffset() == was.at.utcoffset()


def test_a_full_inbox_fits_into_the_next_run() -> None:
    """With the longest ids and senders that come in, and every id that is remembered."""
    state = SessionState(session_key="default:full", agent="main", inbox_limit=10_000)
    inbox = Inbox(state)

    def longest(number: int) -> Envelope:
        message_id = f"{number:x>128}"
        return Envelope(message_id=message_id, sender=Sender(id="é" * 512), label=Label.RESTRICTED)

    for number in range(WINDOW + 1):
        inbox.admit(longest(number))
        inbox.take()
    refused: str = ""
    while not refused:
        envelope = longest(WINDOW + 1 + len(inbox))
        try:
            inbox.check(envelope)
        except LimitExceeded as error:
            refused = error.message
        else:
            inbox.admit(envelope)
    assert f"the limit is {WAITING_BYTES}" in refused
    assert 900 < len(inbox) < 8_000
    (payload,) = converter.to_payloads([state])
    # Temporal refuses a payload of 2 MB.
    assert len(payload.data) < 1_500_000
