"""Where spans go: the OpenTelemetry SDK, loaded only where an exporter is configured.

Invariant: spans leave in batches, off the thread that makes them; when nobody takes them they are
dropped, and the work goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Thread

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import SpanContext

#: How long a process that ends waits for whoever takes its spans.
STOP_SECONDS = 2.0

_given: ContextVar[SpanContext | None] = ContextVar("given_span", default=None)


class Ids(IdGenerator):
    """Random ids, but for a span whose ids are given."""

    def __init__(self) -> None:
        self._random = RandomIdGenerator()

    @contextmanager
    def given(self, own: SpanContext) -> Iterator[None]:
        """Make the next span of the block with these ids."""
        token = _given.set(own)
        try:
            yield
        finally:
            _given.reset(token)

    def generate_trace_id(self) -> int:
        """See `IdGenerator`."""
        own = _given.get()
        return self._random.generate_trace_id() if own is None else own.trace_id

    def generate_span_id(self) -> int:
        """See `IdGenerator`."""
        own = _given.get()
        return self._random.generate_span_id() if own is None else own.span_id


class Exporting:
    """The spans of one process, on their way out through `processor`."""

    def __init__(self, processor: SpanProcessor, service: str, scope: str) -> None:
        self.scope = scope
        self.ids = Ids()
        # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES go before what is given here.
        resource = Resource.create()
        if str(resource.attributes["service.name"]).startswith("unknown_service"):
            resource = resource.merge(Resource({"service.name": service}))
        self._provider = TracerProvider(resource=resource, id_generator=self.ids)
        self._provider.add_span_processor(processor)
        self.tracer = self._provider.get_tracer("perdure")

    @classmethod
    def over_http(cls, endpoint: str | None, service: str, scope: str) -> Exporting:
        """Over OTLP to `endpoint`, else to where OpenTelemetry's variables say."""
        url = None if endpoint is None else f"{endpoint.rstrip('/')}/v1/traces"
        return cls(BatchSpanProcessor(OTLPSpanExporter(url)), service, scope)

    def samples(self, trace_id: int) -> bool:
        """Whether a trace of this id is one of those that are kept (OTEL_TRACES_SAMPLER)."""
        result = self._provider.sampler.should_sample(None, trace_id, "turn")
        return result.decision is not Decision.DROP

    def stop(self) -> None:
        """Export what is left, within `STOP_SECONDS`."""
        # The exporter tries for ten seconds by itself, which a process that is to end has not got.
        stopping = Thread(target=self._provider.shutdown, name="last-spans", daemon=True)
        stopping.start()
        stopping.join(STOP_SECONDS)
