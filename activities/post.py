"""How one session reaches another's workflow: by signals that start it where it is closed.

Invariant: a signal carries ids at most, and may be sent any number of times: an envelope is known
by its id, and to be woken twice is to look twice.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from temporalio.client import Client
from temporalio.common import (
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)

from perdure.domain import visibility
from perdure.domain.envelopes import Envelope
from perdure.domain.keys import Kind, SessionKey
from perdure.domain.messages import Frozen
from perdure.domain.states import SessionState
from perdure.store.runs import Address
from perdure.telemetry import tracing

_RPC_TIMEOUT = timedelta(seconds=10)
_WORKFLOWS = {Kind.DM: "Session", Kind.GROUP: "Session", Kind.SUB_AGENT: "SubAgent"}


class SessionStart(Frozen):
    """What a session's workflow is started with; the rest of its state has defaults."""

    session_key: str
    agent: str


class Post:
    """Signals to sessions, over one connection."""

    def __init__(self, temporal: Client, queue: str) -> None:
        self._temporal = temporal
        self._queue = queue

    async def deliver(self, session_key: str, agent: str, envelope: Envelope) -> None:
        """Announce a message that lies in the mailbox of a session.

        Raises:
            RPCError: when the server did not take it; send again.
        """
        trace = envelope.trace or tracing.carried()
        envelope = envelope.model_copy(update={"trace": trace})
        await self._signal(session_key, agent, "deliver", envelope)

    async def wake(self, *addresses: Address) -> None:
        """Have sessions look at the store again.

        Raises:
            RPCError: when the server did not take one; wake all again.
        """
        for address in addresses:
            await self._signal(address.session_key, address.agent, "wake")

    async def _signal(self, session_key: str, agent: str, signal: str, *arguments: Any) -> None:
        await self._temporal.start_workflow(
            **start_options(SessionKey.parse(session_key), agent, self._queue),
            start_signal=signal,
            start_signal_args=arguments,
            rpc_timeout=_RPC_TIMEOUT,
        )


def start_options(key: SessionKey, agent: str, queue: str) -> dict[str, Any]:
    """How the workflow of a session is started, or found where it is."""
    shown = {
        visibility.AGENT: agent,
        visibility.KIND: key.kind,
        visibility.STATE: SessionState.IDLE,
    }
    return {
        "workflow": _WORKFLOWS[key.kind],
        "arg": SessionStart(session_key=str(key), agent=agent),
        "id": workflow_id(str(key)),
        "task_queue": queue,
        "id_conflict_policy": WorkflowIDConflictPolicy.USE_EXISTING,
        "id_reuse_policy": WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        "static_summary": f"{agent} · {key.kind} · {key}",
        "search_attributes": TypedSearchAttributes(
            [
                SearchAttributePair(SearchAttributeKey.for_keyword(name), str(value))
                for name, value in shown.items()
            ]
        ),
    }


def workflow_id(session_key: str) -> str:
    """The id of a session's workflow."""
    return f"session/{session_key}"
