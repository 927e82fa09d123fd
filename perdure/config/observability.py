"""The `[observability]` table: where traces, metrics and logs go.

Invariant: without a place nothing is made: traces and metrics cost next to nothing while nobody
takes them.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from perdure.config.policies import Table, Word


class ObservabilitySettings(Table):
    """What a process tells about itself, and whom."""

    #: The OTLP endpoint for traces, over HTTP; None leaves it to OTEL_EXPORTER_OTLP_ENDPOINT, and
    #: without that there are none.
    otlp_endpoint: str | None = None
    #: Where a worker serves /metrics; None is nowhere. A gateway serves its own.
    metrics_host: Word = "127.0.0.1"
    metrics_port: int | None = Field(None, ge=0, le=65_535)
    #: Where a worker serves the metrics of Temporal's SDK, on the same host; None is nowhere.
    temporal_metrics_port: int | None = Field(None, ge=1, le=65_535)
    #: "text" for people, "json" for machines; "auto" is JSON where the process is a container's.
    logs: Literal["auto", "json", "text"] = "auto"

    @field_validator("otlp_endpoint")
    @classmethod
    def _over_http(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("http://", "https://")):
            raise ValueError("must begin with http:// or https://")
        return value
