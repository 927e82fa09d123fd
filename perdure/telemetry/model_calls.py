"""One call of one model, as metrics and traces tell of it.

Invariant: the model's name as the settings have it, figures, and the kind of a failure; no words.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry.trace import SpanKind

from perdure.domain.errors import PerdureError
from perdure.domain.messages import Usage
from perdure.telemetry import metrics, tracing, work

_REASONS = {"stop", "tool_call", "length", "content_filter", "error"}


class ModelCall:
    """A call under way."""

    def __init__(self) -> None:
        self.usage: Usage | None = None
        self.finish_reason = ""

    def answered(self, usage: Usage, finish_reason: str) -> None:
        """It has its answer."""
        self.usage, self.finish_reason = usage, finish_reason


@contextmanager
def model_call(name: str) -> Iterator[ModelCall]:
    """Watch the call of the model `name` that the block makes."""
    call, outcome, began = ModelCall(), "ok", time.perf_counter()
    provider, _, model = name.rpartition(":")
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": provider or model,
        "gen_ai.request.model": model,
    }
    with tracing.span(f"chat {model}", attributes, kind=SpanKind.CLIENT) as span:
        try:
            yield call
        except PerdureError as error:
            outcome = error.code
            raise
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        except Exception:
            # Whatever else it was, it is counted, and goes its way.
            outcome = "broken"
            raise
        finally:
            metrics.MODEL_SECONDS.labels(name, outcome).observe(time.perf_counter() - began)
            if call.usage is not None:
                _count(name, call.usage)
                if span is not None:
                    span.set_attribute("gen_ai.usage.input_tokens", call.usage.input_tokens)
                    span.set_attribute("gen_ai.usage.output_tokens", call.usage.output_tokens)
                    reason = call.finish_reason if call.finish_reason in _REASONS else "other"
                    span.set_attribute("gen_ai.response.finish_reasons", [reason])


def _count(name: str, usage: Usage) -> None:
    agent = work.agent()
    metrics.MODEL_TOKENS.labels(agent, name, "input").inc(usage.input_tokens)
    metrics.MODEL_TOKENS.labels(agent, name, "output").inc(usage.output_tokens)
    if usage.cost is not None:
        metrics.MODEL_COST.labels(agent, name).inc(usage.cost)
