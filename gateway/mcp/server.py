"""The MCP server: lists what one who asks may use, and does it for them.

Invariant: who asks is known before anything is listed or done. What goes wrong on purpose is a
tool's error with a code and a hint; anything else is told to the log alone.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from functools import cache
from typing import Any

from mcp import MCPError
from mcp.server import Server, ServerRequestContext
from mcp.types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)
from pydantic import BaseModel

from gateway.http.parts import Gateway
from gateway.mcp import memory, runs, sessions
from gateway.mcp.offers import Asked, Offer, note_refusal
from gateway.mcp.sessions import Answer
from perdure.domain.errors import Code, PerdureError, Refusal
from perdure.tools import Effect

#: All there is, in the order in which it is listed.
OFFERS: tuple[Offer, ...] = (*sessions.OFFERS, *runs.OFFERS, *memory.OFFERS)

#: Of the gateway's tools, as of its HTTP.
VERSION = "1"

_BY_NAME = {one.spec.name: one for one in OFFERS}
_INSTRUCTIONS = (
    "Durable sessions with AI agents. sessions_send says something to a session and waits for the "
    "answer; the same session_key goes on with the same conversation."
)

Context = ServerRequestContext[Any, Any]

_log = logging.getLogger(__name__)


def server(gateway_of: Callable[[Context], Gateway]) -> Server[Any]:
    """An MCP server; `gateway_of` tells on whose behalf a request is answered."""

    async def list_tools(
        context: Context, params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        caller = gateway_of(context).caller
        return ListToolsResult(
            tools=[_tool(one, caller.tenant) for one in OFFERS if one.is_for(caller)]
        )

    async def call_tool(context: Context, params: CallToolRequestParams) -> CallToolResult:
        gateway = gateway_of(context)
        chosen = _BY_NAME.get(params.name)
        if chosen is not None and not chosen.is_for(gateway.caller):
            note_refusal(gateway, chosen.spec.name, *chosen.scopes)
            chosen = None
        if chosen is None:
            raise MCPError(INVALID_PARAMS, f"There is no tool {params.name[:80]!r} for you.")
        try:
            arguments = chosen.spec.parse(json.dumps(params.arguments or {}))
            asked = Asked(gateway, chosen.spec.name, _Counted(context))
            return _told(await chosen.act(asked, arguments))
        except PerdureError as error:
            return _refused(error.refusal)
        except TimeoutError:
            said = f"{params.name} was not confirmed in time. If it was accepted, it happens."
            return _refused(
                Refusal(code=Code.TIMEOUT, message=said, hint="Look before you repeat it.")
            )
        except Exception:
            # Its words may hold anything of the inside.
            _log.exception("the tool %s failed", params.name)
            said = f"{params.name} failed inside the gateway."
            return _refused(Refusal(code=Code.UNAVAILABLE, message=said, hint="Its log tells why."))

    return Server(
        "perdure",
        version=VERSION,
        title="Perdure",
        instructions=_INSTRUCTIONS,
        get_tool_input_schema=_input_schema,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


class _Counted:
    """Progress of one call, counted since nobody knows how much is to come."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._count = 0

    async def __call__(self, message: str) -> None:
        self._count += 1
        await self._context.session.report_progress(self._count, message=message)


def _input_schema(name: str) -> dict[str, Any] | None:
    known = _BY_NAME.get(name)
    return None if known is None else known.spec.schema()


@cache
def _output_schema(result: type[BaseModel]) -> dict[str, Any]:
    return result.model_json_schema(mode="serialization")


def _tool(one: Offer, tenant: str | None) -> Tool:
    effect = one.spec.effect
    description = one.spec.description
    if tenant is not None and "session_key" in one.spec.schema()["properties"]:
        description += f" Your session keys begin with {tenant}:"
    return Tool(
        name=one.spec.name,
        description=description,
        input_schema=one.spec.schema(),
        output_schema=_output_schema(one.result),
        annotations=ToolAnnotations(
            read_only_hint=effect is Effect.READ,
            idempotent_hint=effect is not Effect.ONCE,
            open_world_hint=False,
        ),
    )


def _told(result: BaseModel) -> CallToolResult:
    text = result.model_dump_json()
    failed = False
    if isinstance(result, Answer) and result.turn is not None:
        text = result.turn.text
        if result.turn.error is not None:
            failed, text = True, f"{text}\n\n{result.turn.error.get('message', '')}".strip()
    return CallToolResult(
        content=[TextContent(text=text)],
        structured_content=result.model_dump(mode="json"),
        is_error=failed,
    )


def _refused(refusal: Refusal) -> CallToolResult:
    return CallToolResult(
        content=[TextContent(text=f"{refusal.code}: {refusal.message} {refusal.hint}".strip())],
        structured_content={"error": refusal.model_dump(mode="json")},
        is_error=True,
    )
