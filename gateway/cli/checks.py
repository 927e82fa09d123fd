"""What `perdure doctor` looks at, one check at a time.

Invariant: a check never raises, never changes anything that a command would not change, and says
what to do about what it finds.
"""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError

from gateway.cli.words import one_line, plural
from gateway.connection import connect
from gateway.local import find_stack
from gateway.local.temporal import find_binary
from perdure.config import AgentSettings, Settings, home_folder, load_settings
from perdure.domain.errors import PerdureError
from perdure.domain.messages import Frozen
from perdure.domain.visibility import SEARCH_ATTRIBUTES
from perdure.models import REHEARSAL, close_models, resolve
from perdure.store import Store
from perdure.store.dialect import local_file, parse_url, place

_PYTHON = (3, 11)
#: Bytes free in the home folder: below the first it is worth a look, below the second databases
#: stop in the middle of a write.
_LOW_SPACE = 1_000_000_000
_NO_SPACE = 100_000_000
#: Seconds for one question to Temporal.
_PATIENCE = 10.0
#: A worker asks for work at least once a minute, however idle.
_POLLS_WITHIN = timedelta(seconds=90)


class Status(StrEnum):
    """How a check came out. `warn` works, or will, but is worth a look."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Check(Frozen):
    """One line of the report. `hint` says what to do."""

    name: str
    status: Status
    message: str
    hint: str = ""


async def examine(home: Path | None) -> AsyncIterator[Check]:
    """Every check that can be made, each as soon as it is made."""
    yield _python()
    try:
        folder = home_folder(home)
    except PerdureError as error:
        yield _failed("home", error)
        return
    yield _writable(folder)
    yield _space(folder)
    try:
        settings = load_settings(home)
    except PerdureError as error:
        # What else there is to check stands in the settings.
        yield _failed("settings", error)
        return
    yield _settings(settings)
    yield _policy(settings)
    yield _channels(settings)
    yield await _store(settings)
    if settings.temporal.address is None:
        yield _binary()
    async for check in _temporal(settings):
        yield check
    for name, agent in settings.agents.items():
        yield await _models(name, agent)
    await close_models()


def _failed(name: str, error: PerdureError) -> Check:
    return Check(name=name, status=Status.FAIL, message=error.message, hint=error.hint)


def _python() -> Check:
    version = platform.python_version()
    if sys.version_info < _PYTHON:
        wanted = ".".join(map(str, _PYTHON))
        return Check(
            name="python",
            status=Status.FAIL,
            message=f"This is Python {version}.",
            hint=f"Perdure needs {wanted} or newer.",
        )
    return Check(name="python", status=Status.OK, message=f"{version} at {sys.executable}")


def _nearest(path: Path) -> Path:
    """`path`, or the nearest folder above it that exists."""
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _writable(home: Path) -> Check:
    place = _nearest(home)
    message = str(home) if place == home else f"{home} is not there yet; the first command makes it"
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        return Check(
            name="home",
            status=Status.FAIL,
            message=f"{place} cannot be written: {os.strerror(error.errno or 0)}.",
            hint="Make it writable, or choose another folder with --home or PERDURE_HOME.",
        )
    return Check(name="home", status=Status.OK, message=message)


def _space(home: Path) -> Check:
    free = shutil.disk_usage(_nearest(home)).free
    status = Status.OK
    if free < _LOW_SPACE:
        status = Status.WARN if free >= _NO_SPACE else Status.FAIL
    return Check(
        name="disk",
        status=status,
        message=f"{free / 1e9:,.1f} GB free",
        hint="" if status is Status.OK else f"Make room on the disk of {home}.",
    )


def _settings(settings: Settings) -> Check:
    agents = ", ".join(settings.agents)
    return Check(name="settings", status=Status.OK, message=f"valid; agents: {agents}")


def _policy(settings: Settings) -> Check:
    rules = plural(len(settings.policy.rules), "rule")
    hours = settings.policy.approval_timeout / 3600
    return Check(
        name="policy",
        status=Status.OK,
        message=f"{rules}; a call that nobody approves within {hours:,.4g} h is denied",
    )


def _channels(settings: Settings) -> Check:
    told = ", ".join(f"{name} ({one.level})" for name, one in settings.channels.items())
    agents = [name for name, agent in settings.agents.items() if "message" in agent.tools]
    if agents and not settings.channels:
        return Check(
            name="channels",
            status=Status.WARN,
            message=f"none, and the tool message of {', '.join(agents)} can reach nobody",
            hint="Write a [channels.NAME] table.",
        )
    return Check(name="channels", status=Status.OK, message=told or "none")


async def _store(settings: Settings) -> Check:
    try:
        url = parse_url(settings.store_url)
    except PerdureError as error:
        return _failed("store", error)
    where, file = place(url), local_file(url)
    if file is not None and not file.exists():
        return Check(
            name="store",
            status=Status.OK,
            message=f"{where} is not there yet; the first command makes it",
        )
    try:
        # Opening brings the schema up to date, as every command does.
        store = await Store.open(settings.store_url)
        await store.outbox.newest_id()
        await store.close()
    except Exception as error:
        return Check(
            name="store",
            status=Status.FAIL,
            message=f"{where} cannot be opened: {one_line(str(error), 200)}",
            hint="Was it made by a newer Perdure, or is it damaged? Restore a backup, or move it.",
        )
    return Check(name="store", status=Status.OK, message=f"{where}, its schema up to date")


def _binary() -> Check:
    try:
        return Check(name="temporal binary", status=Status.OK, message=find_binary())
    except PerdureError as error:
        return _failed("temporal binary", error)


async def _temporal(settings: Settings) -> AsyncIterator[Check]:
    address = settings.temporal.address
    if address is None:
        stack = find_stack(settings.home)
        if stack is None:
            yield Check(
                name="temporal",
                status=Status.WARN,
                message="Nothing runs on this home.",
                hint="Start it with `perdure up`, or set PERDURE_TEMPORAL_ADDRESS to a cluster.",
            )
            return
        address = stack.temporal
    try:
        async with asyncio.timeout(_PATIENCE):
            client = await connect(settings)
    except PerdureError as error:
        yield _failed("temporal", error)
        return
    except TimeoutError:
        yield Check(
            name="temporal",
            status=Status.FAIL,
            message=f"Temporal does not answer at {address} within {_PATIENCE:g} s.",
            hint="Is the address right, and is the server up?",
        )
        return
    yield Check(
        name="temporal", status=Status.OK, message=f"{address}, namespace {client.namespace}"
    )
    yield await _asked("search attributes", _search_attributes(client))
    yield await _asked("worker", _worker(client, settings.temporal.queue))


async def _asked(name: str, asking: Awaitable[Check]) -> Check:
    try:
        async with asyncio.timeout(_PATIENCE):
            return await asking
    except (RPCError, TimeoutError) as error:
        return Check(
            name=name,
            status=Status.FAIL,
            message=f"Temporal gave no answer: {one_line(str(error), 200) or 'out of time'}.",
            hint="Is the namespace right, and may this client use it?",
        )


async def _search_attributes(client: Client) -> Check:
    known = await client.operator_service.list_search_attributes(
        ListSearchAttributesRequest(namespace=client.namespace)
    )
    missing = [name for name in SEARCH_ATTRIBUTES if name not in known.custom_attributes]
    if missing:
        return Check(
            name="search attributes",
            status=Status.WARN,
            message=f"not registered: {', '.join(missing)}",
            hint="A starting worker registers them where it may; else an operator does, as Keyword "
            "(`temporal operator search-attribute create`).",
        )
    return Check(name="search attributes", status=Status.OK, message="registered")


async def _worker(client: Client, queue: str) -> Check:
    answer = await client.workflow_service.describe_task_queue(
        DescribeTaskQueueRequest(
            namespace=client.namespace,
            task_queue=TaskQueue(name=queue),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
        )
    )
    since = datetime.now(UTC) - _POLLS_WITHIN
    polling = [
        poller.identity
        for poller in answer.pollers
        if poller.last_access_time.ToDatetime(tzinfo=UTC) > since
    ]
    if not polling:
        return Check(
            name="worker",
            status=Status.FAIL,
            message=f"No worker polls the task queue {queue}, so no message is answered.",
            hint="Start one with `perdure worker`, or everything with `perdure up`.",
        )
    return Check(name="worker", status=Status.OK, message=f"{', '.join(polling)} on {queue}")


async def _models(agent: str, settings: AgentSettings) -> Check:
    failures: list[PerdureError] = []
    for name in settings.models:
        try:
            await resolve(name)
        except PerdureError as error:
            failures.append(error)
    name = f"agent {agent}"
    if not failures:
        stand_in = " (a stand-in, not a language model)" if REHEARSAL in settings.models else ""
        models = ", ".join(settings.models)
        return Check(name=name, status=Status.OK, message=f"{models}{stand_in}")
    usable = len(failures) < len(settings.models)
    return Check(
        name=name,
        status=Status.WARN if usable else Status.FAIL,
        message=" ".join(error.message for error in failures),
        hint=" ".join(dict.fromkeys(error.hint for error in failures)),
    )
