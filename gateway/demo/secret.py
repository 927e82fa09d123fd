"""The scene about a secret: an agent that knows it may not tell it, and a person decides.

Invariant: the demo plays the person and nobody else: it lists and decides approvals as anybody
would, through `SessionClient`, and reads the reasons of policy off the audit trail.
"""

from __future__ import annotations

import asyncio

from gateway.demo.crew import Crew
from gateway.demo.story import CLERK, Story
from perdure.domain.approvals import Approval
from perdure.domain.errors import Conflict
from perdure.domain.states import EventKind
from perdure.policy.hooks import Action
from perdure.store.audit import AuditLog

#: Who approves, as the trail names them.
PERSON = "the demo's person"

#: Entries of a session's trail among which the newest refusal is looked for.
_LOOKED_AT = 50


async def play(crew: Crew, story: Story) -> None:
    """An attempt that policy refuses, then one that waits for a person over a kill."""
    leak = await crew.say(story.leak, CLERK)
    await crew.answered(leak, CLERK)
    await _explain(crew)
    told = await crew.say(story.ask, CLERK)
    await _let_a_person_decide(crew, await crew.turn_of(told, CLERK))
    await crew.answered(told, CLERK)


async def _explain(crew: Crew) -> None:
    log = AuditLog(crew.client.store.database)
    entries = await log.newest(_LOOKED_AT, CLERK)
    refusal = next((entry for entry in reversed(entries) if entry.decision == Action.BLOCK), None)
    if refusal is None:
        crew.left_out.append("the refused message: the model did not try to send it")
        return
    crew.tell.note(
        f"audit entry {refusal.seq} · {refusal.hook} · {refusal.decision} by "
        f"{refusal.decided_by}: {refusal.reason}"
    )


async def _let_a_person_decide(crew: Crew, turn: int) -> None:
    asked = await crew.event_or_end(EventKind.APPROVAL_REQUESTED, session_key=CLERK, turn=turn)
    if asked is None:
        crew.left_out.append("the approval: the model made no call that asks for one")
        return
    waiting = await crew.client.approvals(session_key=CLERK)
    approval = waiting.approvals[-1]
    crew.tell.note(
        f"{approval.id} waits for a person, asked by {approval.asked_by}: {approval.reason}"
    )
    # Time for the workflow to learn that it waits.
    await asyncio.sleep(0.5)
    crew.kill_worker("while a call waits for a person", CLERK)
    await _decide(crew, approval)


async def _decide(crew: Crew, approval: Approval) -> None:
    """Approve, while no worker runs; then try to take it back."""
    async with crew.patience("the approval could not be decided"):
        decided = await crew.client.decide(
            approval.id, approve=True, by=PERSON, reason="The auditor may know."
        )
        crew.tell.note(f"{decided.decided_by} has {decided.state} {decided.id}")
        try:
            await crew.client.decide(approval.id, approve=False, by=PERSON)
        except Conflict:
            crew.tell.note("a second decision was refused: the first one is final")
