"""Calls on session workflows: the only place that speaks Temporal for a client.

Invariant: a call that meets a run which is just ending is made again on the next one, so nobody
outside notices where one run ends and another begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

from temporalio.client import (
    Client,
    WithStartWorkflowOperation,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from activities.post import start_options, workflow_id
from perdure.domain.envelopes import Envelope, Ticket
from perdure.domain.errors import PerdureError, Refusal, Unavailable, from_refusal
from perdure.domain.keys import SessionKey
from perdure.telemetry import tracing
from workflows.session import Session

Result = TypeVar("Result")

#: Tries of a call that meets a run which is ending, or a server that is restarting.
TRIES = 8
#: Seconds before the second try; doubled after each, up to `LONGEST_PAUSE`.
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 2.0
#: The longest single call, and the longest a caller waits for all tries.
RPC_TIMEOUT = timedelta(seconds=20)
PATIENCE = 30.0
#: What the server says of a run that is ending, or while it restarts.
_PASSING = {RPCStatusCode.ABORTED, RPCStatusCode.UNAVAILABLE, RPCStatusCode.NOT_FOUND}


class SessionWorkflows:
    """The workflows of sessions, by key."""

    def __init__(self, temporal: Callable[[], Client], queue: str) -> None:
        self._temporal = temporal
        self._queue = queue

    async def admit(self, key: SessionKey, agent: str, envelope: Envelope) -> Ticket:
        """Admit an envelope; a session that is new or closed is started by it."""
        with tracing.span("admit", {"gen_ai.conversation.id": str(key)}):
            envelope = envelope.model_copy(update={"trace": tracing.carried()})
            return await self._admit(key, agent, envelope)

    async def _admit(self, key: SessionKey, agent: str, envelope: Envelope) -> Ticket:
        async def call() -> Ticket:
            return await self._temporal().execute_update_with_start_workflow(
                Session.admit,
                envelope,
                start_workflow_operation=self._start(key, agent),
                rpc_timeout=RPC_TIMEOUT,
            )

        return await _persist(call)

    async def deliver(self, key: SessionKey, agent: str, envelope: Envelope) -> None:
        """Announce an envelope without waiting for a worker; a session that is new or closed is
        started by it."""
        with tracing.span("deliver", {"gen_ai.conversation.id": str(key)}):
            announced = envelope.model_copy(update={"trace": tracing.carried()})

            async def call() -> None:
                await self._temporal().start_workflow(
                    **start_options(key, agent, self._queue),
                    start_signal="deliver",
                    start_signal_args=[announced],
                    rpc_timeout=RPC_TIMEOUT,
                )

            await _persist(call)

    async def reset(self, key: SessionKey, agent: str, request_id: str) -> None:
        """Ask for a reset; the outbox tells when it is done, with `request_id`."""

        async def call() -> None:
            await self._temporal().execute_update_with_start_workflow(
                Session.reset,
                request_id,
                id=f"reset_{request_id}",
                start_workflow_operation=self._start(key, agent),
                rpc_timeout=RPC_TIMEOUT,
            )

        await _persist(call)

    async def interrupt(self, session_key: str, request_id: str | None = None) -> int | None:
        """Interrupt the turn under way; its number, or None. A run of the workflow does it once
        for each `request_id`."""
        update_id = None if request_id is None else f"interrupt_{request_id}"

        handle = self._temporal().get_workflow_handle(workflow_id(session_key))

        async def call() -> int | None:
            try:
                return await handle.execute_update(
                    Session.interrupt, id=update_id, rpc_timeout=RPC_TIMEOUT
                )
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    return None
                raise

        return await _persist(call)

    async def close(self, key: SessionKey, agent: str) -> None:
        """Ask a session to close; the outbox tells when it is.

        A run that was terminated is replaced first, so that what waits is answered.
        """

        async def call() -> None:
            await self._temporal().execute_update_with_start_workflow(
                Session.close,
                start_workflow_operation=self._start(key, agent),
                rpc_timeout=RPC_TIMEOUT,
            )

        await _persist(call)

    async def approval_decided(self, session_key: str) -> None:
        """Wake a session that waits for a person; one that is closed waits for nobody."""
        handle = self._temporal().get_workflow_handle(workflow_id(session_key))

        async def call() -> None:
            try:
                await handle.signal(Session.approval_decided, rpc_timeout=RPC_TIMEOUT)
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise

        await _persist(call)

    async def wake(self, key: SessionKey, agent: str) -> None:
        """Have a session look at the store; one that is closed is started for it."""

        async def call() -> None:
            await self._temporal().start_workflow(
                **start_options(key, agent, self._queue),
                start_signal="wake",
                rpc_timeout=RPC_TIMEOUT,
            )

        await _persist(call)

    def _start(self, key: SessionKey, agent: str) -> WithStartWorkflowOperation[Any, Any]:
        return WithStartWorkflowOperation(**start_options(key, agent, self._queue))


async def _persist(call: Callable[[], Awaitable[Result]]) -> Result:
    try:
        async with asyncio.timeout(PATIENCE):
            return await _tried(call)
    except TimeoutError as error:
        raise _unavailable(TimeoutError(f"no answer within {PATIENCE:g} s")) from error


async def _tried(call: Callable[[], Awaitable[Result]]) -> Result:
    pause = FIRST_PAUSE
    for attempt in range(1, TRIES + 1):
        try:
            return await call()
        except WorkflowUpdateFailedError as error:
            raise _refusal(error) from error
        except WorkflowUpdateRPCTimeoutOrCancelledError as error:
            if asyncio.current_task().cancelling():  # type: ignore[union-attr]
                raise asyncio.CancelledError from error
            raise _unavailable(error) from error
        except RPCError as error:
            if error.status not in _PASSING or attempt == TRIES:
                raise _unavailable(error) from error
        await asyncio.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE)
    raise AssertionError("the last attempt returns or raises")


def _refusal(error: WorkflowUpdateFailedError) -> PerdureError:
    cause = error.cause
    if isinstance(cause, ApplicationError) and cause.details:
        return from_refusal(Refusal.model_validate(cause.details[0]))
    return Unavailable(f"The session refused: {cause}.")


def _unavailable(error: Exception) -> PerdureError:
    return Unavailable(
        f"Temporal did not confirm the call: {error}.",
        "It may still have been taken; send again with the same message id.",
    )
