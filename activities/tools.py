"""Tool calls: judged, claimed, run, judged again, sealed; a refusal is a result the model reads.

Invariant: a call that had an effect is never silently repeated. An attempt that finds an earlier
claim without a seal runs again only what may be repeated; else it reports an unknown outcome.
Nothing runs that policy did not allow, and the model reads nothing that policy did not let in.
"""

from __future__ import annotations

import asyncio
import contextlib
import traceback
from typing import Any

from pydantic import BaseModel
from temporalio import activity

from activities.bindings import Bindings
from activities.heartbeat import absorb_stop, heartbeating
from activities.roster import Roster
from activities.standing import Done, Pending
from perdure.config import Settings
from perdure.domain.approvals import Approval, ApprovalState
from perdure.domain.errors import (
    Code,
    InvalidArgument,
    OutcomeUnknown,
    PerdureError,
    Refusal,
)
from perdure.domain.labels import Label, join
from perdure.domain.messages import ToolCall
from perdure.domain.runs import RunState
from perdure.domain.states import ToolStatus
from perdure.domain.steps import ToolOutcome, ToolRequest, Waiting
from perdure.guard import Guard
from perdure.store import Store
from perdure.store.claims import UNKNOWN_TOOL, Claim, Look, Result, Ruling, Verdict
from perdure.store.clock import now
from perdure.store.file_labels import EVERYTHING
from perdure.telemetry.work import name_tool
from perdure.tools import BUILTIN, Effect, ToolSpec, to_json_text
from perdure.tools.subagents import SPAWN
from perdure.workspace import Edited, FileText, Listing, Matches, Written, keep

#: A call that has taken its process down so often is not run again, whatever its effect.
MOST_RUNS = 3


class ToolCalls:
    """`ToolActivities`, over the store, the guard and what stands behind each tool."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        roster: Roster,
        guard: Guard,
        bindings: Bindings,
    ) -> None:
        self._settings = settings
        self._store = store
        self._roster = roster
        self._guard = guard
        self._bindings = bindings

    @activity.defn
    async def run_tool(self, request: ToolRequest) -> ToolOutcome:
        """Run one tool call of a committed step, and put its result into the transcript; or ask a
        person first, and report that it waits."""
        async with heartbeating():
            look = await self._store.claims.look(request)
            if look.sealed is not None:
                return await self._sealed(request, look)
            specs = await self._specs(request)
            spec = specs.get(look.call.name)
            name_tool(UNKNOWN_TOOL if spec is None else spec.name)
            ruling = await asyncio.to_thread(self._guard.calls.rule, request, look, spec)
            if ruling.verdict is Verdict.RUN and spec is not None:
                writes = await asyncio.to_thread(self._writes, request, spec, ruling.call)
                ruling = ruling.model_copy(update={"writes": writes})
            if look.claimed and spec is not None and spec.resumable:
                # It was ruled when it was claimed, and has been waiting since.
                claim = Claim(call=ruling.call, label=ruling.label)
            else:
                claim = await self._store.claims.claim(request, ruling)
            if claim.waiting is not None:
                return ToolOutcome(waiting=_waiting(claim.waiting))
            result = await self._result(request, claim, spec, look)
            if isinstance(result, Pending):
                return ToolOutcome(
                    waiting=Waiting(seconds=result.seconds, on=result.on),
                    start=result.start,
                    queued=result.queued,
                    aside=result.aside,
                )
            return await self._seal(request, claim, spec, result)

    @activity.defn
    async def abandon_tool(self, request: ToolRequest) -> ToolOutcome:
        """Report a call whose every attempt died as of unknown outcome; one that was stopped
        before its first attempt as not started."""
        look = await self._store.claims.look(request)
        if look.sealed is not None:
            return await self._sealed(request, look)
        known = False
        with contextlib.suppress(PerdureError):  # its agent may be gone
            known = look.call.name in await self._specs(request)
        ruling = Ruling(verdict=Verdict.RUN, call=look.call, known=known)
        claim = await self._store.claims.claim(request, ruling)
        text = _unknown(claim.call)
        if claim.earlier == 0:
            text = _error(Code.UNAVAILABLE, f"{claim.call.name} was not started.")
        status = ToolStatus.UNKNOWN if claim.earlier else ToolStatus.ERROR
        return await self._seal(request, claim, None, Result(status=status, text=text))

    async def _seal(
        self, request: ToolRequest, claim: Claim, spec: ToolSpec | None, result: Result
    ) -> ToolOutcome:
        if spec is not None and claim.refused is None:
            judged = await asyncio.to_thread(
                self._guard.calls.response, request, spec, claim.call, result.text, result.label
            )
            result = result.model_copy(update={"text": judged.text, "entries": judged.entries})
            if not judged.goes_on:
                # What the model does not read does not raise its session.
                ok = result.status is ToolStatus.OK
                changes = {"status": ToolStatus.ERROR if ok else result.status}
                result = result.model_copy(update={**changes, "label": Label.PUBLIC})
        kept = await asyncio.to_thread(
            keep,
            self._bindings.workspace(request),
            f"{request.turn}-{request.step}-{request.call}.txt",
            result.text,
            self._settings.limits.tool_result_bytes,
        )
        result = result.model_copy(update={"text": kept.text, "kept": kept.path})
        sealed = await asyncio.shield(self._store.claims.seal(request, claim.call, result))
        return ToolOutcome(
            status=sealed, label=result.label, start=result.start, queued=result.queued
        )

    async def _sealed(self, request: ToolRequest, look: Look) -> ToolOutcome:
        """What a call came to whose result an earlier attempt reported, and was not heard."""
        run = None
        if look.call.name == SPAWN:
            run = await self._store.runs.of_call(request)
        return ToolOutcome(
            status=look.sealed,
            label=look.sealed_label,
            start=run.start if run is not None and run.state is RunState.RUNNING else None,
            queued=run is not None and run.state is RunState.QUEUED,
        )

    async def _specs(self, request: ToolRequest) -> dict[str, ToolSpec]:
        member = await self._roster.of(request.session_key, request.agent, request.turn)
        return member.offered(request.aside).specs

    async def _result(
        self, request: ToolRequest, claim: Claim, spec: ToolSpec | None, look: Look
    ) -> Result | Pending:
        call = claim.call
        if claim.refused is not None:
            return Result(
                status=ToolStatus.ERROR,
                text=_error(Code.DENIED, claim.refused, "Policy decided it; do not try again."),
            )
        try:
            if spec is None:
                raise await self._unknown_tool(request, call)
            if claim.earlier < (1 if spec.effect is Effect.ONCE else MOST_RUNS):
                arguments = spec.parse(call.arguments)
                return await self._run(request, spec, arguments, claim, look)
        except PerdureError as error:
            # A tool that is gone by now may have been there when an earlier attempt ran it.
            if spec is not None or not claim.earlier:
                return Result(status=ToolStatus.ERROR, text=_error_text(error.refusal))
        return Result(status=ToolStatus.UNKNOWN, text=_unknown(call), label=claim.label)

    async def _unknown_tool(self, request: ToolRequest, call: ToolCall) -> InvalidArgument:
        specs = await self._specs(request)
        gone = await self._roster.turn_tools.unreachable(request.session_key, request.turn)
        away = [server for server in gone if call.name.startswith(f"{server}__")]
        if away:
            return InvalidArgument(
                f"There is no tool named {call.name[:80]!r} in this turn: the MCP server "
                f"{away[0]} could not be reached when it began.",
                "The next turn looks again.",
            )
        return InvalidArgument(
            f"There is no tool named {call.name[:80]!r}.",
            f"Tools are {', '.join(specs) or 'not available to this agent'}.",
        )

    async def _run(
        self,
        request: ToolRequest,
        spec: ToolSpec,
        arguments: BaseModel,
        claim: Claim,
        look: Look,
    ) -> Result | Pending:
        timeout = spec.timeout or self._settings.limits.tool_timeout
        failed = Result(status=_after(spec), text="", label=claim.label)
        try:
            async with asyncio.timeout(timeout) as deadline:
                result = await self._bindings.call(request, spec, arguments)
                if isinstance(result, Pending):
                    return result
                done = result if isinstance(result, Done) else Done(result)
                text = to_json_text(done.value)
        except OutcomeUnknown as error:
            return failed.model_copy(update={"text": _error_text(error.refusal)})
        except PerdureError as error:
            # Also that something is not there, or how often, is told of a place with a level.
            text = _error_text(error.refusal)
            return failed.model_copy(update={"status": ToolStatus.ERROR, "text": text})
        except asyncio.CancelledError:
            absorb_stop()
            text = _error(Code.UNAVAILABLE, f"{spec.name} was interrupted.")
        except Exception as error:
            # A user's function may raise anything; the model reads it, the log has the rest.
            if not (isinstance(error, TimeoutError) and deadline.expired()):
                text = _raised(spec, error)
                return failed.model_copy(update={"status": ToolStatus.ERROR, "text": text})
            text = _error(
                Code.TIMEOUT,
                f"{spec.name} did not finish within {timeout:g} s.",
                "Check what it did before calling it again.",
            )
        else:
            label = join(claim.label, done.label, self._found(done.value, look))
            changes = {"status": ToolStatus.OK, "text": text, "label": label}
            return failed.model_copy(update={**changes, "start": done.start, "queued": done.queued})
        return failed.model_copy(update={"text": text})

    def _writes(self, request: ToolRequest, spec: ToolSpec, call: ToolCall) -> tuple[str, ...]:
        """Where in the workspace a call may put what its session knows."""
        if spec.effect is Effect.READ:
            return ()
        if spec.name not in BUILTIN:
            return (EVERYTHING,) if spec.workspace else ()
        try:
            path = getattr(spec.parse(call.arguments), "path", None)
            if path is None:
                return ()
            # Where links lead, not what the arguments say.
            return (self._bindings.workspace(request).place(path),)
        except PerdureError:
            return ()  # it will write nothing

    def _found(self, result: Any, look: Look) -> Label:
        """The level of what a search found, which its arguments do not tell."""
        if isinstance(result, Matches):
            paths = {match.path for match in result.matches}
        elif isinstance(result, FileText | Listing | Written | Edited):
            # Where links led, not what the arguments said.
            paths = {result.path}
        else:
            return Label.PUBLIC
        return join(*(self._guard.calls.file_label(path, look.labels) for path in paths))


def _waiting(approval: Approval) -> Waiting:
    seconds = 0.0  # somebody decided meanwhile: look again
    if approval.state is ApprovalState.PENDING:
        seconds = (approval.expires_at - now()).total_seconds()
    return Waiting(approval_id=approval.id, seconds=max(seconds, 0.0))


def _raised(spec: ToolSpec, error: Exception) -> str:
    activity.logger.warning("the tool %s raised", spec.name, exc_info=error)
    # Safe where `str(error)` is not, and without halves of surrogate pairs, which are no text.
    words = "".join(traceback.format_exception_only(error)).strip()
    words = words.encode(errors="replace").decode()
    return _error(Code.UNAVAILABLE, f"{spec.name} failed: {words}"[:2_000])


def _after(spec: ToolSpec) -> ToolStatus:
    return ToolStatus.ERROR if spec.effect is Effect.READ else ToolStatus.UNKNOWN


def _unknown(call: ToolCall) -> str:
    return _error(
        Code.UNAVAILABLE,
        f"Unknown outcome: {call.name} was started, and its process died before it "
        "could report. It may or may not have taken effect.",
        "Check what it did before calling it again.",
    )


def _error(code: Code, message: str, hint: str = "") -> str:
    return _error_text(Refusal(code=code, message=message, hint=hint))


def _error_text(refusal: Refusal) -> str:
    return '{"error": ' + refusal.model_dump_json() + "}"
