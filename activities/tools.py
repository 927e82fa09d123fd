"""Tool calls: claimed, run, sealed; a refusal is a result that the model reads.

Invariant: a call that had an effect is never silently repeated. An attempt that finds an earlier
claim without a seal runs again only what may be repeated; else it reports an unknown outcome.
"""

from __future__ import annotations

import asyncio
import traceback
from typing import Any

from pydantic import BaseModel
from temporalio import activity

from activities.heartbeat import absorb_stop, heartbeating
from activities.toolboxes import Toolboxes
from perdure.config import Settings
from perdure.domain.errors import Code, InvalidArgument, PerdureError, Refusal
from perdure.domain.messages import ToolCall
from perdure.domain.states import ToolStatus
from perdure.domain.steps import ToolOutcome, ToolRequest
from perdure.store import Store
from perdure.tools import Effect, ToolContext, ToolSpec, to_json_text
from perdure.workspace import Workspace, keep

#: A call that has taken its process down so often is not run again, whatever its effect.
MOST_RUNS = 3


class ToolCalls:
    """`ToolActivities`, over the store, the workspaces and each agent's tools."""

    def __init__(self, settings: Settings, store: Store, toolboxes: Toolboxes) -> None:
        self._settings = settings
        self._store = store
        self._toolboxes = toolboxes

    @activity.defn
    async def run_tool(self, request: ToolRequest) -> ToolOutcome:
        """Run one tool call of a committed step, and put its result into the transcript."""
        async with heartbeating():
            claim = await self._store.claims.claim(request)
            if claim.sealed is not None:
                return ToolOutcome(status=claim.sealed)
            status, text = await self._result(request, claim.call, claim.earlier)
            return await self._seal(request, claim.call, status, text)

    @activity.defn
    async def abandon_tool(self, request: ToolRequest) -> ToolOutcome:
        """Report a call whose every attempt died as of unknown outcome; one that was stopped
        before its first attempt as not started."""
        claim = await self._store.claims.claim(request)
        if claim.sealed is not None:
            return ToolOutcome(status=claim.sealed)
        if claim.earlier == 0:
            text = _error_text(
                Refusal(code=Code.UNAVAILABLE, message=f"{claim.call.name} was not started.")
            )
            return await self._seal(request, claim.call, ToolStatus.ERROR, text)
        return await self._seal(request, claim.call, ToolStatus.UNKNOWN, _unknown(claim.call))

    async def _seal(
        self, request: ToolRequest, call: ToolCall, status: ToolStatus, text: str
    ) -> ToolOutcome:
        kept = await asyncio.to_thread(
            keep,
            self._workspace(request),
            f"{request.turn}-{request.step}-{request.call}.txt",
            text,
            self._settings.limits.tool_result_bytes,
        )
        sealed = await asyncio.shield(self._store.claims.seal(request, call, status, kept.text))
        return ToolOutcome(status=sealed)

    async def _result(
        self, request: ToolRequest, call: ToolCall, earlier: int
    ) -> tuple[ToolStatus, str]:
        spec: ToolSpec | None = None
        try:
            spec = await self._spec(request.agent, call.name)
            if earlier < (1 if spec.effect is Effect.ONCE else MOST_RUNS):
                return await self._run(request, spec, spec.parse(call.arguments))
        except PerdureError as error:
            # A tool that is gone by now may have been there when an earlier attempt ran it.
            if spec is not None or not earlier:
                return ToolStatus.ERROR, _error_text(error.refusal)
        return ToolStatus.UNKNOWN, _unknown(call)

    async def _spec(self, agent: str, name: str) -> ToolSpec:
        specs = (await self._toolboxes.of(agent)).specs
        if name not in specs:
            raise InvalidArgument(
                f"There is no tool named {name[:80]!r}.",
                f"Tools are {', '.join(specs) or 'not available to this agent'}.",
            )
        return specs[name]

    async def _run(
        self, request: ToolRequest, spec: ToolSpec, arguments: BaseModel
    ) -> tuple[ToolStatus, str]:
        timeout = spec.timeout or self._settings.limits.tool_timeout
        try:
            async with asyncio.timeout(timeout) as deadline:
                return ToolStatus.OK, to_json_text(await self._call(request, spec, arguments))
        except PerdureError:
            raise
        except asyncio.CancelledError:
            absorb_stop()
            return _after(spec), _error_text(
                Refusal(code=Code.UNAVAILABLE, message=f"{spec.name} was interrupted.")
            )
        except Exception as error:
            # A user's function may raise anything; the model reads it, the log has the rest.
            if not (isinstance(error, TimeoutError) and deadline.expired()):
                return ToolStatus.ERROR, _raised(spec, error)
            return _after(spec), _error_text(
                Refusal(
                    code=Code.TIMEOUT,
                    message=f"{spec.name} did not finish within {timeout:g} s.",
                    hint="Check what it did before calling it again.",
                )
            )

    async def _call(self, request: ToolRequest, spec: ToolSpec, arguments: BaseModel) -> Any:
        workspace = self._workspace(request)
        toolbox = await self._toolboxes.of(request.agent)
        user_tool = toolbox.users.get(spec.name)
        if user_tool is not None:
            context = ToolContext(
                session_key=request.session_key,
                turn=request.turn,
                step=request.step,
                workspace=workspace.root,
                idempotency_key=(
                    f"{request.session_key}/{request.turn}/{request.step}/{request.call}"
                ),
            )
            return await user_tool.call(arguments, context)
        operation = getattr(workspace, spec.name)
        return await asyncio.to_thread(operation, **arguments.model_dump())

    def _workspace(self, request: ToolRequest) -> Workspace:
        limits = self._settings.limits
        return Workspace.for_session(
            self._settings.home, request.session_key, limits.file_bytes, limits.tool_result_bytes
        )


def _raised(spec: ToolSpec, error: Exception) -> str:
    activity.logger.warning("the tool %s raised", spec.name, exc_info=error)
    # Safe where `str(error)` is not, and without halves of surrogate pairs, which are no text.
    words = "".join(traceback.format_exception_only(error)).strip()
    words = words.encode(errors="replace").decode()
    return _error_text(
        Refusal(code=Code.UNAVAILABLE, message=f"{spec.name} failed: {words}"[:2_000])
    )


def _after(spec: ToolSpec) -> ToolStatus:
    return ToolStatus.ERROR if spec.effect is Effect.READ else ToolStatus.UNKNOWN


def _unknown(call: ToolCall) -> str:
    return _error_text(
        Refusal(
            code=Code.UNAVAILABLE,
            message=(
                f"Unknown outcome: {call.name} was started, and its process died before it "
                "could report. It may or may not have taken effect."
            ),
            hint="Check what it did before calling it again.",
        )
    )


def _error_text(refusal: Refusal) -> str:
    return '{"error": ' + refusal.model_dump_json() + "}"
