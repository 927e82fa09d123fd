"""What people may read of a turn.

Invariant: an answer that was judged on its way to a person is shown as it was judged. One that
went to another session was not, and is shown here only up to `gateway.level`.
"""

from __future__ import annotations

from perdure.domain.keys import Kind, SessionKey
from perdure.domain.labels import Label, can_flow
from perdure.shapes import ABOVE
from perdure.store import Store
from perdure.store.transcript import TurnResult


async def turn_for_people(
    store: Store, level: Label, session_key: str, message_id: str
) -> TurnResult | None:
    """The turn of a message as a person at `level` may read it; None when no turn has taken it."""
    result = await store.transcript.turn_of(session_key, message_id)
    if result is None or can_flow(result.label, level):
        return result
    asked = await store.transcript.message(session_key, message_id)
    among_sessions = SessionKey.parse(session_key).kind is Kind.SUB_AGENT or (
        asked is not None and asked.from_session is not None
    )
    if not among_sessions:
        return result
    return result.model_copy(update={"text": ABOVE.format(result.label)})
