"""The scene about a secret: an agent that knows it may not tell it, and a person decides.

Invariant: the demo plays the person and nobody else: it lists and decides approvals as anybody
would, through `SessionClient`, and reads the reasons of policy off the audit trail.
"""

from __future__ import annotations

import asyncio

from gateway.demo.cast import CLERK
from gateway.demo.crew import Crew
from gateway.demo.story import Story
from perdure.domain.approvals import Approval
from perdure.domain.errors import Conflict, Unavailable
from perdure.domain.states import EventKind
from perdure.policy.hooks import Action
from perdure.store.audit import AuditLog

#: Who approves, as the trail names them.
PERSON = "the demo's person"

#: Entries of a session's trail among which the newest refusal is looked for.
_LOOKED_AT = 50
#: Seconds between two tries to wake a session that was decided about.
_RETRY_PAUSE = 0.2


async def refuse(crew: Crew, story: Story) -> None:
    """An attempt to tell, which policy refuses."""
    leak = await crew.say(story.leak, CLERK)
    await crew.answered(leak, CLERK)
    entries = await AuditLog(crew.client.store.database).newest(_LOOKED_AT, CLERK)
    refusal = next((entry for entry in reversed(entries) if entry.decision == Action.BLOCK), None)
    if refusal is None:
        crew.left_out.append("the refused message: the model did not try to send it")
        return
    crew.tell.note(
        f"audit entry {refusal.seq} · {refusal.hook} · {refusal.decision} by {refusal.decided_by}"
    )


async def ask(crew: Crew, story: Story) -> tuple[str, Approval | None]:
    """An attempt that waits for a person: its message, and what is to be decided."""
    told = await crew.say(story.ask, CLERK)
    turn = await crew.turn_of(told, CLERK)
    asked = await crew.event_or_end(EventKind.APPROVAL_REQUESTED, session_key=CLERK, turn=turn)
    if asked is None:
        crew.left_out.append("the approval: the model made no call that asks for one")
        return told, None
    approval = (await crew.client.approvals(session_key=CLERK)).approvals[-1]
    crew.tell.note(f"asked by {approval.asked_by}: {approval.reason}")
    return told, approval


async def decide(crew: Crew, approval: Approval) -> None:
    """Approve, whatever is down just now; then try to take it back."""
    async with crew.patience("the approval could not be decided"):
        await _approve(crew, approval)
        decided = await crew.client.store.approvals.get(approval.id)
        crew.tell.note(f"{decided.decided_by} has {decided.state} {decided.id}")
        try:
            await crew.client.decide(approval.id, approve=False, by=PERSON)
        except Conflict:
            crew.tell.note("a second decision was refused: the first one is final")


async def _approve(crew: Crew, approval: Approval) -> None:
    while True:
        try:
            await crew.client.decide(
                approval.id, approve=True, by=PERSON, reason="The auditor may know."
            )
            return
        except Conflict:
            return  # it was recorded at the first try, and the session is woken now
        except Unavailable:
            await asyncio.sleep(_RETRY_PAUSE)
