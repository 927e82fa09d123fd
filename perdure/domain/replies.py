"""Answers that go back to where a message came from.

Invariant: where an answer goes was fixed when its message was admitted; nothing said in between
changes it.
"""

from __future__ import annotations

from perdure.domain.messages import Frozen


class ReplyTo(Frozen):
    """Where the answer to a message goes: a configured channel, a recipient there, and a thread of
    theirs."""

    channel: str
    recipient: str
    thread: str | None = None


class OwedReply(Frozen):
    """A turn has ended whose answer is to leave."""

    session_key: str
    agent: str
    turn: int
    message_id: str
