"""The metrics of a process, as Prometheus scrapes them.

Invariant: each process counts what it did itself, and its counters begin at zero with it. Label
values are bounded: agents, models, tools, channels and rules stand in the settings, the rest are
closed sets. No session, message or person is one.
"""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

# A second series for each, which says only when its process began.
disable_created_metrics()  # type: ignore[no-untyped-call]
REGISTRY = CollectorRegistry()
CONTENT_TYPE = CONTENT_TYPE_LATEST

#: From the store's milliseconds to a model's minutes, in seconds.
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900)


def _counter(name: str, about: str, *labels: str) -> Counter:
    return Counter(f"perdure_{name}", about, labels, registry=REGISTRY)


def _seconds(name: str, about: str, *labels: str) -> Histogram:
    return Histogram(f"perdure_{name}", about, labels, registry=REGISTRY, buckets=_SECONDS)


def _gauge(name: str, about: str, *labels: str) -> Gauge:
    return Gauge(f"perdure_{name}", about, labels, registry=REGISTRY)


# What a worker did.
TURNS = _counter("turns_total", "Turns that ended here.", "agent", "state")
ACTIVITY_SECONDS = _seconds(
    "activity_seconds", "Attempts of activities: model steps, tool calls, writes.", "activity"
)
ACTIVITY_FAILURES = _counter(
    "activity_failures_total", "Attempts of activities that failed, by kind.", "activity", "code"
)
RETRIES = _counter("activity_retries_total", "Attempts after the first.", "activity")
STEP_SECONDS = _seconds("step_seconds", "Attempts of model steps, all in all.", "agent")
MODEL_SECONDS = _seconds("model_seconds", "Calls of models.", "model", "outcome")
MODEL_TOKENS = _counter("model_tokens_total", "Tokens used.", "agent", "model", "direction")
MODEL_COST = _counter(
    "model_cost_dollars_total", "US dollars spent, where the price is known.", "agent", "model"
)
RATE_LIMITED = _counter("rate_limit_waits_total", "Waits that a provider asked for.", "agent")
RATE_LIMITED_SECONDS = _counter(
    "rate_limit_wait_seconds_total", "How long they were, in seconds.", "agent"
)
TOOL_CALLS = _counter("tool_calls_total", "Tool calls that were reported.", "tool", "status")
TOOL_SECONDS = _seconds("tool_seconds", "Looks at tool calls, those that wait included.", "tool")
DECISIONS = _counter("policy_decisions_total", "Decisions recorded.", "hook", "decision", "by")
LABEL_REFUSALS = _counter(
    "label_refusals_total", "Acts refused because information would have flowed down.", "hook"
)
COMPACTIONS = _counter("compactions_total", "Sweeps of a context, by how they ended.", "ended")
SUMMARIES = _counter("summaries_total", "Summaries written, by a model or without.", "by")
MEMORY_ERRORS = _counter("memory_errors_total", "Work on memory that failed.", "activity")
DELIVERIES = _counter(
    "deliveries_total", "Messages to the outside that were settled.", "channel", "state"
)

# What a gateway did.
HTTP_REQUESTS = _counter("http_requests_total", "Requests answered.", "method", "route", "status")
HTTP_SECONDS = _seconds("http_seconds", "Until an answer began.", "method", "route")
LISTENERS = _gauge("event_listeners", "Event streams open now.")

# What the store says, of all processes together: read at each scrape.
WAITING_MESSAGES = _gauge("waiting_messages", "Messages that wait for their turn.")
OLDEST_WAITING = _gauge("oldest_waiting_message_seconds", "How long the oldest has waited.")
FULLEST_INBOX = _gauge("fullest_inbox_messages", "Messages that wait in the fullest inbox.")
APPROVALS_PENDING = _gauge("approvals_pending", "Calls that wait for a person.")
OLDEST_APPROVAL = _gauge("oldest_approval_seconds", "How long the oldest of them has waited.")
RUNS = _gauge("runs", "Runs of sub-agents that have not ended.", "state")


def exposition() -> bytes:
    """All of them, in the text format."""
    return generate_latest(REGISTRY)
