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
from fastapi.routing import APIRoute

from perdure.domain.access import Caller, Scope
from perdure.domain.errors import Denied

#: The ways in which a key is sent, as OpenAPI names them.
SCHEMES: dict[str, Any] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "`Bearer pdr_…`"},
    "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}


def caller_of(request: Request) -> Caller:
    """Who makes a request."""
    caller = request.scope["state"]["caller"]
    assert isinstance(caller, Caller)
    return caller


@dataclass(frozen=True)
class Needs:
    """The dependency of a route on a scope."""

    scope: Scope

    async def __call__(self, request: Request) -> None:
        """Refuse who has not the scope.

        Raises:
            Denied: naming it.
        """
        if not caller_of(request).may(self.scope):
            raise Denied(
                f"This needs the scope {self.scope}, which your key does not have.",
                "Use a key that has it; `perdure keys list` shows the scopes of each.",
            )


async def _open() -> None:
    """The dependency of a route that anyone may use who reaches the gateway."""


def needs(scope: Scope) -> Any:
    """What a router or a route lists among its dependencies: who asks must have this scope."""
    return Depends(Needs(scope))


def open_to_all() -> Any:
    """What a route lists among its dependencies that tells nothing of anybody's."""
    return Depends(_open)


def scopes_of(route: APIRoute) -> frozenset[Scope] | None:
    """The scopes that a route needs, none for one that is open; None when it says neither."""
    calls = list(_calls(route.dependant))
    found = frozenset(call.scope for call in calls if isinstance(call, Needs))
    return found if found or _open in calls else None


def describe(app: FastAPI, document: dict[str, Any]) -> None:
    """Say in an OpenAPI document which operation needs which scope."""
    document.setdefault("components", {})["securitySchemes"] = SCHEMES
    for route in app.routes:
        if not isinstance(route, APIRoute) or not route.include_in_schema:
            continue
        scopes = scopes_of(route)
        for method in route.methods:
            operation = document["paths"][route.path_format].get(method.lower())
            if operation is not None and scopes:
                operation["security"] = [{name: []} for name in SCHEMES]
                operation["x-scopes"] = sorted(scopes)


def _calls(dependant: Dependant) -> Iterator[Any]:
    for one in dependant.dependencies:
        yield one.call
        yield from _calls(one)
