"""The OpenAPI document: what FastAPI knows of the routes, with examples, tags and problems added.

Invariant: every answer that an operation can give is in it, with an example.
"""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from gateway.http import access
from gateway.http.examples import EXAMPLES
from gateway.http.more_examples import EXAMPLES as MORE
from gateway.http.openai.examples import EXAMPLES as OPENAI
from gateway.http.problems import PROBLEM_JSON, STATUS, Problem
from gateway.http.tags import Tagged
from perdure.domain.errors import Code

ABOUT = """Durable sessions with AI agents.

Send a message with an `Idempotency-Key` of your own, and it is answered once, whatever crashes.
Every other request that acts says what its key does.
Follow a session's events with any EventSource client; it resumes by `Last-Event-ID`.
Lists have a `next`, also as a `Link`; whoever follows it misses no row and reads none twice.
What is read has an `ETag`; sent back as `If-None-Match`, it spares the answer.
Every refusal is a problem detail (RFC 9457) with a `code` and a `hint`."""

_JSON = "application/json"
_EXAMPLES = EXAMPLES | MORE | OPENAI
#: Where refusals are no problem details, but OpenAI's.
SHAPED = ("/v1/chat", "/v1/models", "/v1/responses")
_CODES = {status: code for code, status in STATUS.items()} | {
    403: Code.DENIED,
    409: Code.CONFLICT,
    412: Code.CONFLICT,
    413: Code.LIMIT_EXCEEDED,
    415: Code.INVALID_ARGUMENT,
    422: Code.INVALID_ARGUMENT,
    429: Code.RATE_LIMITED,
}
#: What may be said of each status; the words are those of the code that is usual there.
_TOLD = {
    400: ("The session key 'bob' does not begin with tenant:user.", "A key is tenant:user."),
    401: ("This gateway asks for a key.", "Send Authorization: Bearer with it."),
    403: ("A RESTRICTED message is above the clearance of agent main.", "Use another agent."),
    404: ("There is no session default:bob.", "`perdure sessions` lists what there is."),
    409: ("A decision is final.", "`perdure approvals list` shows what still waits."),
    412: ("It is not as you have read it.", "Read it again, and decide by what it is now."),
    413: ("The message has 1000001 bytes; limits.message_bytes is 1000000.", "Use a file."),
    415: ("The body is not declared as JSON.", "Send Content-Type: application/json."),
    422: ("query.limit: Input should be less than or equal to 200.", "See /openapi.json."),
    429: ("Too many requests.", "Wait as long as Retry-After says."),
    503: ("Temporal does not answer.", "Send again with the same Idempotency-Key."),
    504: ("Not done within 30 s. If it was accepted, it will still happen.", "Ask again."),
}
_TAG = {
    "description": "Names this answer: send it as `If-None-Match` to be told when it is another.",
    "schema": {"type": "string"},
}
_LINK = {
    "description": "The next page, with `rel=next`; absent on the last one.",
    "schema": {"type": "string"},
}
_IF_NONE_MATCH = {
    "name": "If-None-Match",
    "in": "header",
    "required": False,
    "description": "The `ETag` of an answer you have: if it is the same still, 304 comes instead.",
    "schema": {"type": "string"},
    "example": '"5f2b6c0d5f2b6c0d5f2b6c0d5f2b6c0d"',
}


def describe(app: FastAPI) -> dict[str, Any]:
    """The document of an application."""
    document = get_openapi(
        title=app.title, version=app.version, description=ABOUT, routes=app.routes
    )
    access.describe(app, document)
    tagged = {
        route.path_format
        for route in access.routes(app)
        if isinstance(route.original_route, Tagged) and "GET" in (route.methods or ())
    }
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if path.startswith(SHAPED):
                # What is wrong with a request is told with 400 there.
                operation["responses"].pop("422", None)
            else:
                for status in _implied(operation):
                    operation["responses"].setdefault(status, _refusal())
            _show_problems(operation)
            _show_examples(operation)
            if method == "get" and path in tagged:
                _show_tags(operation)
    return document


def _implied(operation: dict[str, Any]) -> Iterator[str]:
    """How an operation may be refused for what it takes, whatever it does with it."""
    if {one["name"] for one in operation.get("parameters", ())} & {"cursor", "idempotency-key"}:
        yield "400"
    if "requestBody" in operation:
        yield from ("413", "415")


def _refusal() -> dict[str, Any]:
    return {"content": {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}}}


def _show_problems(operation: dict[str, Any]) -> None:
    """FastAPI would call problems plain JSON."""
    for status, response in operation["responses"].items():
        if int(status) >= 400 and "Problem" in _models_of(response):
            content = response["content"].popitem()[1]
            content.setdefault("example", _problem(int(status)))
            response["content"] = {PROBLEM_JSON: content}
            response["description"] = HTTPStatus(int(status)).phrase
            if int(status) in (429, 503):
                response["headers"] = {
                    "Retry-After": {"schema": {"type": "string"}, "description": "Seconds."}
                }


def _problem(status: int) -> dict[str, Any]:
    detail, hint = _TOLD.get(status, (f"{HTTPStatus(status).phrase}.", ""))
    code = _CODES.get(status, Code.UNAVAILABLE)
    title = HTTPStatus(status).phrase
    problem = Problem(title=title, status=status, detail=detail, code=code, hint=hint)
    return problem.model_dump(mode="json")


def _show_examples(operation: dict[str, Any]) -> None:
    for content in _contents(operation):
        for name in _models(content.get("schema", {})):
            if name in _EXAMPLES:
                shown = _EXAMPLES[name].model_dump(mode="json")
                content.setdefault("example", shown)


def _contents(operation: dict[str, Any]) -> Iterator[dict[str, Any]]:
    parts = [operation.get("requestBody", {}), *operation["responses"].values()]
    for part in parts:
        if _JSON in part.get("content", {}):
            yield part["content"][_JSON]


def _models_of(response: dict[str, Any]) -> set[str]:
    return {
        name
        for content in response.get("content", {}).values()
        for name in _models(content.get("schema", {}))
    }


def _models(schema: dict[str, Any]) -> Iterator[str]:
    for one in (schema, *schema.get("anyOf", ())):
        if "$ref" in one:
            yield one["$ref"].rpartition("/")[2]


def _show_tags(operation: dict[str, Any]) -> None:
    found = operation["responses"].get("200", {})
    schema = found.get("content", {}).get(_JSON)
    if schema is None:
        return
    headers = found.setdefault("headers", {})
    headers["ETag"] = _TAG
    if any(one["name"] == "cursor" for one in operation.get("parameters", ())):
        headers["Link"] = _LINK
    operation.setdefault("parameters", []).append(_IF_NONE_MATCH)
    operation["responses"]["304"] = {
        "description": "It is the same still.",
        "headers": {"ETag": _TAG},
    }
