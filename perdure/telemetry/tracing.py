"""Traces: one per turn, linked to what caused it.

Invariant: a span holds ids, names and figures. The ids of a turn's trace and of its first span
follow from the session and the turn, so that every process, attempt and later turn knows them
without being told. Where no exporter is configured nothing is made.

Attributes follow OpenTelemetry's semantic conventions for generative AI (`gen_ai.*`) and HTTP.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from perdure.config.observability import ObservabilitySettings

if TYPE_CHECKING:
    from perdure.telemetry.exporting import Exporting

Attributes = Mapping[str, str | int | float | bool | Sequence[str]]

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")

_exporting: Exporting | None = None


def configure(
    settings: ObservabilitySettings,
    service: str,
    scope: str,
    environ: Mapping[str, str] = os.environ,
) -> None:
    """Export the spans of this process, if it is configured where to.

    Args:
        settings: `[observability]`.
        service: the name of this kind of process, unless OTEL_SERVICE_NAME gives another.
        scope: what tells sessions apart that have the same key, such as Temporal's namespace.
        environ: OpenTelemetry's own variables, honoured as its SDK documents them.
    """
    if settings.otlp_endpoint or any(environ.get(name) for name in _ENDPOINTS):
        # The SDK takes a tenth of a second to load, and only here is it needed.
        from perdure.telemetry.exporting import Exporting

        use(Exporting.over_http(settings.otlp_endpoint, service, scope))


def use(exporting: Exporting | None) -> None:
    """Export through `exporting` from now on."""
    global _exporting
    _exporting = exporting


def on() -> bool:
    """Whether anybody takes spans."""
    return _exporting is not None


def stop() -> None:
    """Hand over what was not exported yet; takes two seconds where nobody answers."""
    global _exporting
    exporting, _exporting = _exporting, None
    if exporting is not None:
        exporting.stop()


@contextmanager
def span(
    name: str,
    attributes: Attributes | None = None,
    *,
    kind: SpanKind = SpanKind.INTERNAL,
    parent: SpanContext | None = None,
    causes: Sequence[str] = (),
    unless: bool = False,
) -> Iterator[Span | None]:
    """A span for the block, `unless` it needs none: below `parent`, else below the span of this
    context. It links to `causes`, each as it was carried here.

    What the block raises is told by its type alone: words may quote the conversation.
    """
    if _exporting is None or unless:
        yield None
        return
    context = None if parent is None else _context(parent)
    with _exporting.tracer.start_as_current_span(
        name,
        context,
        kind,
        attributes,
        [Link(cause) for cause in map(read, causes) if cause is not None],
        record_exception=False,
        set_status_on_exception=False,
    ) as made:
        try:
            yield made
        except BaseException as error:
            failed(made, type(error).__name__)
            raise


def failed(made: Span, kind: str) -> None:
    """Say that what a span stands for failed, and how."""
    made.set_attribute("error.type", kind)
    made.set_status(Status(StatusCode.ERROR))


def turn_of(session_key: str, turn: int) -> SpanContext | None:
    """The first span of a turn's trace; None while there are no traces."""
    if _exporting is None:
        return None
    digest = hashlib.sha256(f"{_exporting.scope}\n{session_key}\n{turn}".encode()).digest()
    trace_id = int.from_bytes(digest[:16])
    return SpanContext(
        trace_id,
        int.from_bytes(digest[16:24]),
        is_remote=True,
        trace_flags=TraceFlags(TraceFlags.SAMPLED if _exporting.samples(trace_id) else 0),
    )


def tell_turn(
    own: SpanContext,
    name: str,
    attributes: Attributes,
    *,
    began: datetime,
    ended: datetime,
    error: str | None,
    causes: Sequence[SpanContext],
) -> None:
    """Export the first span of a turn's trace, once the turn has ended."""
    if _exporting is None:
        return
    with _exporting.ids.given(own):
        made = _exporting.tracer.start_span(
            name,
            Context(),
            attributes=attributes,
            links=[Link(cause) for cause in causes],
            start_time=_nanoseconds(began),
        )
    if error is not None:
        failed(made, error)
    made.end(_nanoseconds(ended))


def carried() -> str | None:
    """The span of this context in W3C's `traceparent` form, to be carried to another process."""
    own = trace.get_current_span().get_span_context() if _exporting is not None else None
    if own is None or not own.is_valid:
        return None
    return f"00-{own.trace_id:032x}-{own.span_id:016x}-{own.trace_flags:02x}"


def read(traceparent: str | None) -> SpanContext | None:
    """The span that was carried here; None for what is not one."""
    found = _TRACEPARENT.fullmatch(traceparent or "")
    if found is None:
        return None
    trace_id, span_id, flags = (int(part, 16) for part in found.groups())
    read = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
    return read if read.is_valid else None


def _context(parent: SpanContext) -> Context:
    return trace.set_span_in_context(trace.NonRecordingSpan(parent), Context())


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000) * 1_000
