"""Every activity is watched from one place: its log lines, its figures, its span.

Invariant: watching changes nothing. What an activity returns or raises passes unaltered, and what
goes wrong in telling of it is logged. A retry is a span of its own; the first span of a turn's
trace is told by whoever ends the turn, and told again by who finds it ended, under the same ids.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry.trace import Span
from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from perdure.domain.errors import Code, PerdureError
from perdure.domain.states import TurnState
from perdure.domain.steps import StepOutcome, StepRequest, ToolOutcome, TurnEnd
from perdure.store import Store
from perdure.telemetry import metrics, tracing, work
from perdure.telemetry.work import Work, working

_log = logging.getLogger(__name__)

#: The activities that are part of a turn, with the names of their spans.
_SPANS = {"take_step": "step", "run_tool": "execute_tool", "compact": "compact"}
_MEMORY = {"remember", "tend_memory", "reindex_memory"}


class Watching(Interceptor):
    """Watches the activities of a worker."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """See `Interceptor`."""
        return _Watched(next, self._store)


class _Watched(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, store: Store) -> None:
        super().__init__(next)
        self._store = store

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        info = activity.info()
        request = input.args[0] if input.args else None
        about = _work(info.activity_type, request)
        if info.attempt > 1:
            metrics.RETRIES.labels(about.kind).inc()
        began = time.perf_counter()
        with working(about), _span(about, info.attempt, request) as span:
            try:
                outcome = await super().execute_activity(input)
            except (Exception, asyncio.CancelledError) as error:
                _count_failure(about, error)
                raise
            finally:
                _count_time(about, time.perf_counter() - began)
                if span is not None and about.tool:
                    span.update_name(f"execute_tool {about.tool}")
                    span.set_attribute("gen_ai.tool.name", about.tool)
            _count_outcome(about, outcome)
            if span is not None and isinstance(outcome, ToolOutcome) and outcome.waiting:
                span.set_attribute("perdure.waiting", outcome.waiting.on)
        await self._turn_ended(about, request, outcome)
        return outcome

    async def _turn_ended(self, about: Work, request: Any, outcome: Any) -> None:
        """Count a turn that has ended, and tell of it."""
        state = outcome.ended if isinstance(outcome, StepOutcome) else None
        if isinstance(request, TurnEnd):
            state = request.state
        if state is None or about.session is None or about.turn is None:
            return
        try:
            agent = about.agent
            if not agent:
                row = await self._store.sessions.get(about.session)
                agent = row.agent if row is not None else ""
            metrics.TURNS.labels(agent, state).inc()
            if tracing.on():
                await self._tell(about.session, about.turn, request)
        except Exception:
            # The turn is committed: that nobody could count it must not have it made again.
            _log.exception("a turn has ended, and it could not be told")

    async def _tell(self, session: str, turn: int, request: Any) -> None:
        ended = await self._store.turn_traces.of(session, turn)
        own = tracing.turn_of(session, turn)
        if ended is None or own is None:
            return
        carried = request.trace if isinstance(request, StepRequest | TurnEnd) else None
        cause = tracing.read(carried)
        if cause is None and ended.caused_by is not None:
            cause = tracing.turn_of(*ended.caused_by)
        error = None
        if ended.state is not TurnState.COMPLETED:
            error = ended.error or ended.state
        tracing.tell_turn(
            own,
            f"invoke_agent {ended.agent}",
            {
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": ended.agent,
                "gen_ai.conversation.id": session,
                "perdure.turn": turn,
                "perdure.state": ended.state,
            },
            began=ended.started_at,
            ended=ended.finished_at,
            error=error,
            causes=[] if cause is None else [cause],
        )


def _work(kind: str, request: Any) -> Work:
    """What an activity works on, read off its request."""
    about = Work(kind)
    for name in ("agent", "turn", "step", "call"):
        value = getattr(request, name, None)
        if value is not None:
            setattr(about, name, value)
    about.session = getattr(request, "session_key", None)
    return about


@contextmanager
def _span(about: Work, attempt: int, request: Any) -> Iterator[Span | None]:
    name = _SPANS.get(about.kind)
    if not tracing.on() or name is None or about.session is None or about.turn is None:
        yield None
        return
    attributes: dict[str, str | int] = {
        "gen_ai.conversation.id": about.session,
        "gen_ai.agent.name": about.agent,
        "perdure.turn": about.turn,
        "perdure.attempt": attempt,
    }
    if about.step is not None:
        attributes["perdure.step"] = about.step
    if about.call is not None:
        attributes["gen_ai.operation.name"] = "execute_tool"
        attributes["perdure.call"] = about.call
    parent = tracing.turn_of(about.session, about.turn)
    joins = request.join_traces if isinstance(request, StepRequest) else ()
    with tracing.span(name, attributes, parent=parent, causes=joins) as span:
        work.note(trace=None if span is None else f"{span.get_span_context().trace_id:032x}")
        yield span


def _count_time(about: Work, seconds: float) -> None:
    metrics.ACTIVITY_SECONDS.labels(about.kind).observe(seconds)
    if about.kind == "take_step":
        metrics.STEP_SECONDS.labels(about.agent).observe(seconds)
    elif about.tool:
        metrics.TOOL_SECONDS.labels(about.tool).observe(seconds)


def _count_failure(about: Work, error: BaseException) -> None:
    code = type(error).__name__
    if isinstance(error, ApplicationError):
        code = error.type or code
        if code == Code.RATE_LIMITED and error.next_retry_delay is not None:
            metrics.RATE_LIMITED.labels(about.agent).inc()
            metrics.RATE_LIMITED_SECONDS.labels(about.agent).inc(
                error.next_retry_delay.total_seconds()
            )
    elif isinstance(error, PerdureError):
        code = error.code
    metrics.ACTIVITY_FAILURES.labels(about.kind, code).inc()
    if about.kind in _MEMORY:
        metrics.MEMORY_ERRORS.labels(about.kind).inc()


def _count_outcome(about: Work, outcome: Any) -> None:
    if isinstance(outcome, ToolOutcome) and outcome.status is not None and about.tool:
        metrics.TOOL_CALLS.labels(about.tool, outcome.status).inc()
