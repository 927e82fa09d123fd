"""What a request may do: every route says which scope it needs, or that it is open to all.

Invariant: a route that says neither is a fault that a test finds. Who asks was settled before any
route was looked for, by `gateway.http.authentication`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import RouteContext, iter_route_contexts
from starlette.types import Scope as Connection

from gateway.gate import HOW
from gateway.http.problems import PROBLEM_JSON
from perdure.domain.access import Caller, Scope
from perdure.domain.errors import Denied, Unauthenticated

#: The ways in which a key is sent, as OpenAPI names them.
SCHEMES: dict[str, Any] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "`Bearer pdr_…`"},
    "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}


#: What any operation may be refused for that asks for a scope.
_REFUSALS = {
    "401": "No key, or none that is good.",
    "403": "The key is not good for this.",
    "429": "Too much of this key, or of this address; `Retry-After` says when to come back.",
}


def caller_of(connection: Connection) -> Caller:
    """Who makes the request of an ASGI scope.

    Raises:
        Unauthenticated: when nobody said who.
    """
    caller = connection["state"]["caller"]
    if caller is None:
        raise Unauthenticated("This gateway asks for an API key.", HOW)
    assert isinstance(caller, Caller)
    return caller


@dataclass(frozen=True)
class Needs:
    """The dependency of a route on one of some scopes."""

    scopes: tuple[Scope, ...]

    async def __call__(self, request: Request) -> None:
        """Refuse who has none of them, as `check` does."""
        check(request.scope, *self.scopes)


async def _open() -> None:
    """The dependency of a route that anyone may use who reaches the gateway."""


def check(connection: Connection, *scopes: Scope) -> Caller:
    """Who makes a request, if they have one of these scopes. For what is mounted, and has no
    routes to say it.

    Raises:
        Unauthenticated: when nobody said who asks.
        Denied: naming the scopes.
    """
    caller = caller_of(connection)
    if not any(map(caller.may, scopes)):
        raise Denied(
            f"This needs the scope {' or '.join(scopes)}, which your key does not have.",
            "Use a key that has it; `perdure keys list` shows the scopes of each.",
        )
    return caller


def needs(*scopes: Scope) -> Any:
    """What a router or a route lists among its dependencies: who asks must have one of these."""
    return Depends(Needs(scopes))


async def _of_every_tenant(request: Request) -> None:
    if caller_of(request.scope).tenant is not None:
        raise Denied("This is about every tenant, and your key is for one.", "Use another key.")


def of_every_tenant() -> Any:
    """What a route lists among its dependencies that knows no tenants: a key for one of them is
    not good for it."""
    return Depends(_of_every_tenant)


def open_to_all() -> Any:
    """What a route lists among its dependencies that tells nothing of anybody's, or has its own
    proof of who asks: it is reached without a key."""
    return Depends(_open)


def routes(app: FastAPI) -> Iterator[RouteContext]:
    """Every route of an application that FastAPI handles, with what it depends on."""
    for route in iter_route_contexts(app.routes):
        if isinstance(getattr(route, "dependant", None), Dependant):
            yield route


def scopes_of(route: RouteContext) -> frozenset[Scope] | None:
    """The scopes that a route asks for, none of one that is open; None when it says neither."""
    calls = list(_calls(route.dependant))
    found = frozenset(scope for call in calls if isinstance(call, Needs) for scope in call.scopes)
    return found if found or _open in calls else None


def describe(app: FastAPI, document: dict[str, Any]) -> None:
    """Say in an OpenAPI document which operation needs which scope."""
    document.setdefault("components", {})["securitySchemes"] = SCHEMES
    for route in routes(app):
        scopes = scopes_of(route)
        for method in route.methods or ():
            operation = document["paths"].get(route.path_format, {}).get(method.lower())
            if operation is not None and scopes:
                operation["security"] = [{name: []} for name in SCHEMES]
                operation["x-scopes"] = sorted(scopes)
                for status, why in _REFUSALS.items():
                    operation["responses"].setdefault(status, _problem(why))


def _problem(why: str) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": why, "content": {PROBLEM_JSON: {"schema": schema}}}


def _calls(dependant: Dependant) -> Iterator[Any]:
    for one in dependant.dependencies:
        yield one.call
        yield from _calls(one)
