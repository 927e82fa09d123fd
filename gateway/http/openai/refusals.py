"""Refusals as OpenAI tells them: `{"error": {"message", "type", "param", "code"}}`.

Invariant: whatever goes wrong on these paths, the caller reads this shape; and a client that tries
again by itself is told not to where the same request would only fail again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import Field
from starlette.exceptions import HTTPException
from ulid import ULID

from gateway.http.problems import (
    DECLARED,
    STATUS,
    UNDECLARED,
    UNREADABLE,
    WELL_FORMED,
    Problem,
    is_undeclared,
)
from perdure.domain.errors import InvalidArgument, NotFound, PerdureError
from perdure.domain.messages import Frozen

_log = logging.getLogger(__name__)

#: What OpenAI calls the kinds of refusals; those below 500 are else the caller's request.
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
}
#: Seconds after which what is full or away now is worth another try.
_RETRY_AFTER = 1
#: OpenAI's client tries 408, 409, 429 and 5xx again by itself. A conflict stays one.
_FOR_EVER = frozenset({409})


class ErrorDetail(Frozen):
    """What was refused and why; `param` names the part of the request."""

    message: str = Field(examples=["There is no agent 'gpt-5'. Configured agents: main."])
    type: str = Field(examples=["invalid_request_error"])
    param: str | None = Field(None, examples=["model"])
    code: str | None = Field(None, examples=["model_not_found"])


class ErrorBody(Frozen):
    """A refusal."""

    error: ErrorDetail


class BadRequest(InvalidArgument):
    """A part of a request that means something else here, or nothing."""

    def __init__(self, param: str, message: str, hint: str = "", reason: str = "") -> None:
        super().__init__(message, hint)
        self.param = param
        self.reason = reason or "invalid_value"


class NoModel(NotFound):
    """There is no agent of that name."""


class TurnFailed(PerdureError):
    """The turn has failed for good, or was stopped; the same id asks for the same again."""


def detail_of(error: PerdureError, status: int) -> ErrorDetail:
    """What is told of a domain error."""
    param, code = None, str(error.code)
    if isinstance(error, BadRequest):
        param, code = error.param, error.reason
    elif isinstance(error, NoModel):
        param, code = "model", "model_not_found"
    return ErrorDetail(message=_utf8(str(error)), type=type_of(status), param=param, code=code)


def type_of(status: int) -> str:
    """OpenAI's name for the kind of refusal that a status is."""
    return _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")


def refused(
    status: int, detail: ErrorDetail, *, again: bool = True, headers: Mapping[str, str] = {}
) -> Response:
    """A refusal as a response. `again`: whether the same request may succeed later."""
    told = dict(headers)
    if status in (429, 503) and again:
        told.setdefault("Retry-After", str(_RETRY_AFTER))
    if not again or status in _FOR_EVER:
        told["x-should-retry"] = "false"
    body = ErrorBody(error=detail).model_dump_json()
    return Response(body, status, told, media_type="application/json")


def refusal_of(error: PerdureError) -> Response:
    """A domain error as a response."""
    status = STATUS[error.code]
    return refused(status, detail_of(error, status), again=not isinstance(error, TurnFailed))


def told_as_openai(
    status: int, message: str, code: str | None, headers: Mapping[str, str]
) -> Response:
    """A refusal that was made before the request came to its endpoint."""
    detail = ErrorDetail(message=_utf8(message), type=type_of(status), code=code)
    return refused(status, detail, headers=headers)


def of_problem(problem: Problem) -> ErrorBody:
    """A refusal that was made before the request came to its endpoint, as OpenAI tells it."""
    message = f"{problem.detail} {problem.hint}".strip()
    kind = type_of(problem.status)
    return ErrorBody(error=ErrorDetail(message=message, type=kind, code=str(problem.code)))


class OpenAIRoute(APIRoute):
    """A route whose refusals have OpenAI's shape."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def answered(request: Request) -> Response:
            try:
                return await handle(request)
            except PerdureError as error:
                return refusal_of(error)
            except RequestValidationError as error:
                if is_undeclared(request, error):
                    return told_as_openai(415, f"{UNDECLARED} {DECLARED}", "invalid_value", {})
                return refused(400, _wrong(error))
            except HTTPException as error:
                if error.status_code == 400:
                    return told_as_openai(400, f"{UNREADABLE} {WELL_FORMED}", "invalid_json", {})
                phrase = error.detail or HTTPStatus(error.status_code).phrase
                return told_as_openai(error.status_code, phrase, None, error.headers or {})
            except Exception:
                # As `problems` tells a fault, in OpenAI's shape: its words may hold anything.
                incident = ULID()
                _log.exception("incident %s: a fault in %s", incident, request.method)
                message = f"The gateway failed to answer; this is its fault (incident {incident})."
                return told_as_openai(500, message, "internal", {})

        return answered


def _wrong(error: RequestValidationError) -> ErrorDetail:
    """The first thing that is wrong with a request."""
    found = error.errors()[0]
    param = ".".join(str(part) for part in found["loc"] if part != "body")
    if found["type"] == "json_invalid":
        message, param, code = "The body is not JSON.", "", "invalid_json"
    elif found["type"] == "extra_forbidden":
        message = f"Unrecognized request argument supplied: {param}."
        code = "unknown_parameter"
    else:
        message = f"{param or 'The body'}: {found['msg']}."
        code = "invalid_value"
    return ErrorDetail(
        message=_utf8(message), type="invalid_request_error", param=_utf8(param) or None, code=code
    )


def _utf8(text: str) -> str:
    """`text` without lone surrogates, which JSON can spell and UTF-8 cannot."""
    return text.encode(errors="replace").decode()
