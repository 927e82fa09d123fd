"""The group "message": telling someone outside.

Invariant: a model names channel and recipient; where they lead and what may flow there, the
settings say. The text here is what a language model reads.
"""

from __future__ import annotations

from pydantic import Field

from perdure.domain.steps import Lane
from perdure.tools.spec import Arguments, Effect, ToolSpec

GROUP = "message"

#: Seconds; more than a delivery with all its tries takes.
_TIMEOUT = 120.0


class Message(Arguments):
    """Arguments of `message`."""

    channel: str = Field(min_length=1, max_length=64, description="Name of a configured channel.")
    recipient: str = Field(
        min_length=1,
        max_length=320,
        description="Name of a recipient configured for the channel, or an address there.",
    )
    text: str = Field(min_length=1, description="The message, as the recipient reads it.")


SPECS = (
    ToolSpec(
        name="message",
        description=(
            "Send a text to someone outside through a configured channel. status is sent; "
            "withheld, when this session holds information that the recipient may not get; or "
            "unknown, when it may or may not have arrived: do not send it again unasked."
        ),
        group=GROUP,
        parameters=Message,
        lane=Lane.ACTIVITY,
        # The delivery ledger answers a second run: it never sends twice by itself.
        effect=Effect.IDEMPOTENT,
        timeout=_TIMEOUT,
    ),
)
