"""Refusals in the shape that the clients of a path expect, where it is not the problem detail's.

Invariant: a refusal is made once, as a problem, wherever it comes from; only how it is written
depends on the path. Status and headers stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pydantic import BaseModel
from starlette.datastructures import MutableHeaders
from starlette.types import Message, Scope, Send

from gateway.http.problems import PROBLEM_JSON, Problem

#: How a problem is written at a path and below it.
Shape = Callable[[Problem], BaseModel]


def shaped(scope: Scope, send: Send, shapes: Mapping[str, Shape]) -> Send:
    """`send`, which writes the problems of a request in the shape of its path."""
    shape = _shape_of(scope.get("path", ""), shapes) if scope["type"] == "http" else None
    if shape is None:
        return send
    start: Message | None = None
    body = b""

    async def written(message: Message) -> None:
        nonlocal start, body
        if message["type"] == "http.response.start" and _is_problem(message):
            start = message
            return
        if start is None:
            await send(message)
            return
        body += message.get("body", b"")
        if not message.get("more_body", False):
            content = shape(Problem.model_validate_json(body)).model_dump_json().encode()
            headers = MutableHeaders(raw=start["headers"])
            headers["content-type"] = "application/json"
            headers["content-length"] = str(len(content))
            await send({**start, "headers": headers.raw})
            await send({"type": "http.response.body", "body": content})

    return written


def _shape_of(path: str, shapes: Mapping[str, Shape]) -> Shape | None:
    return next(
        (shape for prefix, shape in shapes.items() if f"{path}/".startswith(f"{prefix}/")), None
    )


def _is_problem(message: Message) -> bool:
    declared = dict(message.get("headers", ())).get(b"content-type", b"")
    return bool(declared.startswith(PROBLEM_JSON.encode()))
