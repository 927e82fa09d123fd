"""What the endpoints share: the gateway they serve, keys in paths, waits that can end early.

Invariant: nothing waits for a caller who is gone, nor longer than the gateway runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar
from urllib.parse import quote, unquote

from fastapi import Depends, Path, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.types import Scope

from gateway.client import SessionClient
from gateway.http.access import caller_of
from gateway.http.problems import Problem
from perdure.domain.access import Caller
from perdure.domain.errors import Unavailable

Result = TypeVar("Result")

#: How a session key may be spelt; `perdure.domain.keys` has the last word.
KEY_PATTERN = (
    "^[A-Za-z0-9_.+/=,!-]{1,60}:[A-Za-z0-9_.+/=,!-]{1,60}"
    "(~(peer|channel|thread)~[A-Za-z0-9_.+/=,!-]{1,60})?$"
)

#: Seconds until Temporal and a worker must have confirmed what was asked of them. A worker that
#: died is back by then.
PATIENCE = 30.0
#: The longest a request may wait, in seconds: a day.
LONGEST_WAIT = 86_400


@dataclass(frozen=True)
class Process:
    """What a gateway process has, for what it does in its own name; `stopping` is set when it is
    to end. It is not for what a request asks: that is done on behalf of its caller."""

    client: SessionClient
    stopping: asyncio.Event


@dataclass(frozen=True)
class Gateway:
    """What an endpoint works with: a client on behalf of who asks."""

    client: SessionClient
    caller: Caller
    stopping: asyncio.Event


def process_of(connection: Scope) -> Process:
    """The process that serves the request of an ASGI scope."""
    process = connection["app"].state.process
    assert isinstance(process, Process)
    return process


def gateway_of(connection: Scope) -> Gateway:
    """What the request of an ASGI scope is answered with.

    Raises:
        Unauthenticated: when nobody said who asks.
    """
    process, caller = process_of(connection), caller_of(connection)
    return Gateway(process.client.on_behalf_of(caller), caller, process.stopping)


async def _process(request: Request) -> Process:
    return process_of(request.scope)


async def _gateway(request: Request) -> Gateway:
    return gateway_of(request.scope)


async def _session_key(
    key: Annotated[
        str,
        Path(
            description="`tenant:user[~marker~value]…`; a `/` in it is written `%2F`.",
            examples=["default:bob~thread~42"],
            json_schema_extra={"pattern": KEY_PATTERN},
        ),
    ],
) -> str:
    return unquote(key)


async def _message_id(
    message_id: Annotated[
        str, Path(description="The id of a message.", examples=["msg_01KB7ZJ3T9"])
    ],
) -> str:
    return unquote(message_id)


TheGateway = Annotated[Gateway, Depends(_gateway)]
TheProcess = Annotated[Process, Depends(_process)]
KeyInPath = Annotated[str, Depends(_session_key)]
MessageIdInPath = Annotated[str, Depends(_message_id)]


async def known_parameters(request: Request) -> None:
    """Refuse a parameter that the route does not know: a filter with a misspelt name would be
    none, and a cursor the first page again."""
    known = sorted(set(_parameters(request.scope["route"].dependant)))
    told = f"is not a parameter here; known: {', '.join(known) or 'none'}"
    unknown = [name for name in request.query_params if name not in known]
    if unknown:
        raise RequestValidationError(
            [{"type": "extra_forbidden", "loc": ("query", name), "msg": told} for name in unknown]
        )


def _parameters(dependant: Dependant) -> Iterator[str]:
    for field in dependant.query_params:
        yield field.alias
    for one in dependant.dependencies:
        yield from _parameters(one)


def turn_path(session_key: str, message_id: str) -> str:
    """The path at which the turn of a message is found."""
    return f"/v1/sessions/{quote(session_key, safe=':~@')}/turns/{quote(message_id, safe='')}"


def shown(body: BaseModel, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A model as a JSON response."""
    return Response(body.model_dump_json(), status, headers, media_type="application/json")


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The documentation of an endpoint's refusals; of those that any endpoint has, see
    `gateway.http.access`."""
    return {status: {"model": Problem} for status in (*statuses, 422, 503)}


async def while_wanted(
    work: Coroutine[Any, Any, Result],
    stopping: asyncio.Event,
    *,
    caller: Request | None = None,
    within: float | None = None,
) -> Result:
    """The result of `work`, which is given up when nobody can take it any more.

    Args:
        work: what to wait for.
        stopping: ends the wait when it is set.
        caller: ends the wait when this request's caller hangs up.
        within: the longest wait, in seconds.

    Raises:
        Unavailable: when the gateway stops or the caller hung up.
        TimeoutError: after `within` seconds.
    """
    working = asyncio.create_task(work)
    ends: list[asyncio.Task[Any]] = [asyncio.create_task(stopping.wait())]
    if caller is not None:
        ends.append(asyncio.create_task(_hung_up(caller)))
    try:
        done, _ = await asyncio.wait(
            [working, *ends], timeout=within, return_when=asyncio.FIRST_COMPLETED
        )
        if working in done:
            return working.result()
        if not done:
            raise TimeoutError
        raise Unavailable(
            "The gateway is stopping.", "Ask again in a moment; a message id is good for ever."
        )
    finally:
        for task in (working, *ends):
            task.cancel()
        await asyncio.gather(working, *ends, return_exceptions=True)


async def _hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
