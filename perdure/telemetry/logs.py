"""Log lines, of every library alike: for a person at a terminal, or as JSON for machines.

Invariant: a line tells where it belongs: session, turn and step in a worker, request and caller in
a gateway. The words of a line stay its author's affair; nothing is added here but ids and names.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from typing import Any, Literal

import structlog
from structlog.stdlib import ProcessorFormatter
from structlog.typing import EventDict, Processor

from perdure.telemetry import work

#: Set by Kubernetes in every container of a pod.
_IN_A_POD = "KUBERNETES_SERVICE_HOST"
_SESSION = "session/"


def configure(
    kind: Literal["auto", "json", "text"], environ: Mapping[str, str] = os.environ
) -> None:
    """Write all log lines of this process to stderr, from LOG_LEVEL (INFO) on."""
    as_json = kind == "json" or (kind == "auto" and (os.getpid() == 1 or _IN_A_POD in environ))
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter(as_json=as_json, colors=sys.stderr.isatty()))
    logging.basicConfig(level=environ.get("LOG_LEVEL", "INFO"), handlers=[handler], force=True)


def formatter(*, as_json: bool, colors: bool = False) -> logging.Formatter:
    """The one formatter, over the standard library's logging."""
    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _place,
    ]
    last: list[Processor] = [ProcessorFormatter.remove_processors_meta]
    if as_json:
        # A traceback as text: the structured one would tell the values of variables.
        last += [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    else:
        plain = structlog.dev.plain_traceback
        last.append(structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plain))
    return ProcessorFormatter(foreign_pre_chain=shared, processors=last)


def _place(_logger: Any, _name: str, event: EventDict) -> EventDict:
    event.update(work.fields())
    # A workflow has no context of its own: its logger says in the record which one it is.
    record = event.get("_record")
    workflow = getattr(record, "temporal_workflow", None)
    if workflow is not None:
        event["session"] = str(workflow.get("workflow_id", "")).removeprefix(_SESSION)
        event["run"] = workflow.get("run_id")
    return event
