"""What an MCP client is offered: a tool with its arguments, its result, and who may use it.

Invariant: every tool names its scopes, and is listed for those who have one of them; no argument
says who asks, at which label, or in whose name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import BaseModel

from gateway.http.parts import Gateway
from perdure.domain.access import Caller, Scope
from perdure.domain.errors import Denied
from perdure.domain.steps import Lane
from perdure.tools import Effect, ToolSpec


class Progress(Protocol):
    """How a long wait tells how far it is."""

    async def __call__(self, message: str) -> None:
        """Tell the client, if it listens."""


@dataclass(frozen=True)
class Asked:
    """One call: on whose behalf, of which tool, and where progress is told."""

    gateway: Gateway
    tool: str
    progress: Progress

    def check(self, scope: Scope) -> None:
        """Check that who asks has a scope.

        Raises:
            Denied: naming it.
        """
        if not self.gateway.caller.may(scope):
            note_refusal(self.gateway, self.tool, scope)
            raise Denied(
                f"This needs the scope {scope}, which you do not have.",
                "Ask with a key, or start the server with a --scope, that has it.",
            )


@dataclass(frozen=True)
class Offer:
    """A tool of the gateway."""

    spec: ToolSpec
    #: Who may use it has one of these.
    scopes: tuple[Scope, ...]
    #: What it answers with.
    result: type[BaseModel]
    act: Callable[[Asked, Any], Awaitable[BaseModel]]

    def is_for(self, caller: Caller) -> bool:
        """Whether it is there for one who asks."""
        return any(map(caller.may, self.scopes))


def note_refusal(gateway: Gateway, tool: str, *scopes: Scope) -> None:
    """Have the audit trail say that a tool of ours was asked for without its scope."""
    why = f"The tool {tool} needs the scope {' or '.join(scopes)}."
    gateway.client.refusals.note(gateway.caller.signature, "MCP", why)


def offer(
    name: str,
    description: str,
    parameters: type[BaseModel],
    act: Callable[[Asked, Any], Awaitable[BaseModel]],
    result: type[BaseModel],
    *scopes: Scope,
    effect: Effect = Effect.READ,
) -> Offer:
    """A tool, its arguments read and refused as those of the built-in ones are."""
    spec = ToolSpec(
        name=name,
        description=description,
        group="mcp",
        parameters=parameters,
        lane=Lane.ACTIVITY,
        effect=effect,
    )
    return Offer(spec=spec, scopes=scopes, result=result, act=act)
