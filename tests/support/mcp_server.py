"""A real MCP server for tests, whose tools are what a file says at the moment.

`python mcp_server.py FOLDER [PORT]`: on its standard streams, or by HTTP. In FOLDER, `tools.json`
has the names of the tools that it lists now, and `calls.jsonl` gets a line for each call.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
from pathlib import Path
from typing import Any

from mcp import MCPError, types
from mcp.server import Server
from mcp.server.stdio import stdio_server

FOLDER = Path(sys.argv[1])
TOOLS = FOLDER / "tools.json"
CALLS = FOLDER / "calls.jsonl"
HINTS = types.ToolAnnotations(read_only_hint=True)


def listed() -> list[types.Tool]:
    names = json.loads(TOOLS.read_text()) if TOOLS.exists() else ["book", "find"]
    return [
        types.Tool(
            name=name,
            description=f"Tells and does {name}.",
            input_schema={"type": "object", "properties": {"text": {"type": "string"}}},
            annotations=HINTS,
        )
        for name in names
    ]


async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
    return types.ListToolsResult(tools=listed())


async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    name, arguments = params.name, params.arguments or {}
    line = {
        "tool": name,
        "arguments": arguments,
        "pid": os.getpid(),
        "meta": dict(params.meta or {}),
    }
    if context.request is not None:
        line["authorization"] = context.request.headers.get("authorization")
    with CALLS.open("a") as calls:
        calls.write(json.dumps(line) + "\n")
    text = str(arguments.get("text", ""))
    match name:
        case "relist":
            TOOLS.write_text(json.dumps(text.split()))
        case "slow":
            await asyncio.sleep(float(text))
        case "die":
            os._exit(1)
        case "fail":
            said = types.TextContent(text=f"no {text} today")
            return types.CallToolResult(content=[said], is_error=True)
        case "show":
            data = base64.b64encode(b"x" * 300).decode()
            return types.CallToolResult(
                content=[
                    types.ImageContent(data=data, mime_type="image/png"),
                    types.ResourceLink(name="plan", uri="file:///plan.txt"),
                ],
                structured_content={"rooms": 3},
            )
        case "much":
            text = "word " * 40_000
    if name not in [tool.name for tool in listed()] and name != "relist":
        raise MCPError(code=types.INVALID_PARAMS, message=f"Unknown tool: {name}")
    return types.CallToolResult(content=[types.TextContent(text=f"{name}: {text}")])


async def main() -> None:
    server = Server("shop", on_list_tools=list_tools, on_call_tool=call_tool)
    if len(sys.argv) > 2:
        import uvicorn

        app = server.streamable_http_app(stateless_http=True)
        await uvicorn.Server(
            uvicorn.Config(app, port=int(sys.argv[2]), log_level="warning")
        ).serve()
        return
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(main())
