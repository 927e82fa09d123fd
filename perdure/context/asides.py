"""The side threads of a session: what is said in an exchange while the main turn waits for it.

Invariant: the main thread never sees a side thread, and a side thread sees the main one up to the
call that is open, well-formed: that call has a result that says so.
"""

from __future__ import annotations

from collections.abc import Sequence

from perdure.context.tokens import message_tokens
from perdure.domain.messages import Message, Role

#: What stands for the result of a call that is under way.
UNDER_WAY = '{"status": "under way"}'


def side_thread(transcript: Sequence[Message], exchange: str | None) -> list[Message]:
    """The main thread, and behind it what was said aside in `exchange`."""
    thread = [message for message in transcript if not message.aside]
    thread += _open_results(thread)
    return thread + [
        message for message in transcript if message.aside and message.exchange == exchange
    ]


def _open_results(thread: Sequence[Message]) -> list[Message]:
    """Results of the calls that the newest answer made and that have none."""
    calling = next((each for each in reversed(thread) if each.role is Role.ASSISTANT), None)
    if calling is None:
        return []
    done = {
        message.tool_call_id
        for message in thread
        if (message.turn, message.step) == (calling.turn, calling.step)
    }
    return [
        calling.model_copy(
            update={
                "id": f"{calling.id}:{call.id}",
                "role": Role.TOOL,
                "text": UNDER_WAY,
                "tokens": message_tokens(UNDER_WAY),
                "tool_calls": (),
                "tool_call_id": call.id,
                "tool_name": call.name,
                "raw": None,
            }
        )
        for call in calling.tool_calls
        if call.id not in done
    ]
