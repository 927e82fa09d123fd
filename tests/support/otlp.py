"""A collector of traces for tests: it speaks OTLP over HTTP on a free port.

Invariant: what it holds is what came over the wire, as OpenTelemetry's own messages.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


@dataclass(frozen=True)
class Span:
    """One exported span; ids in hexadecimal, `links` as pairs of trace and span."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    links: tuple[tuple[str, str], ...]
    attributes: dict[str, Any]
    failed: bool


@dataclass
class Collector:
    """What came in. `raw` is all of it, for a search."""

    url: str
    spans: list[Span] = field(default_factory=list)
    raw: bytes = b""

    def take(self, body: bytes) -> None:
        """Take in one request."""
        self.raw += body
        for part in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = next(
                a.value.string_value for a in part.resource.attributes if a.key == "service.name"
            )
            self.spans += [
                _span(service, span) for scope in part.scope_spans for span in scope.spans
            ]

    def of(self, session: str, name: str = "") -> list[Span]:
        """The spans of a session, in the order of their arrival."""
        return [
            span
            for span in self.spans
            if span.attributes.get("gen_ai.conversation.id") == session
            and span.name.startswith(name)
        ]


def _span(service: str, span: Any) -> Span:
    return Span(
        service=service,
        name=span.name,
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        attributes={a.key: getattr(a.value, a.value.WhichOneof("value")) for a in span.attributes},
        failed=span.status.code == span.status.STATUS_CODE_ERROR,
    )


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector that listens during the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            collector.take(body)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(ExportTraceServiceResponse().SerializeToString())

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing to tell."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector = Collector(f"http://127.0.0.1:{server.server_port}")
        Thread(target=server.serve_forever, daemon=True).start()
        yield collector
        server.shutdown()
