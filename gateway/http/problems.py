"""Refusals over HTTP: RFC 9457 problem details, with the `code` and `hint` of every refusal.

Invariant: whatever goes wrong, the caller reads a problem. What it tells of the inside of the
gateway is at most the number of an incident in the log, and it never repeats the caller's input.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Literal

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import iter_route_contexts
from pydantic import Field
from starlette.exceptions import HTTPException
from ulid import ULID

from perdure.domain.errors import Code, PerdureError
from perdure.domain.messages import Frozen

PROBLEM_JSON = "application/problem+json"

#: `limit_exceeded` is 429, since a full inbox empties; a message that is too large for ever is
#: told as 413 where it is refused.
STATUS: Mapping[Code, int] = {
    Code.INVALID_ARGUMENT: 400,
    Code.NOT_FOUND: 404,
    Code.UNAUTHENTICATED: 401,
    Code.DENIED: 403,
    Code.LIMIT_EXCEEDED: 429,
    Code.DEADLOCK: 409,
    Code.RATE_LIMITED: 429,
    Code.TIMEOUT: 504,
    Code.CONFLICT: 409,
    Code.APPROVAL_REQUIRED: 403,
    Code.UNAVAILABLE: 503,
}

#: What to say of a status that the framework itself gives.
_CODE_OF_STATUS = {404: Code.NOT_FOUND, 413: Code.LIMIT_EXCEEDED}

#: What to do with a body beyond its limit.
TOO_LARGE = "Put the content into a file of the workspace and name it in the message."
#: What is wrong with a body that the framework gives up on without saying why.
UNREADABLE = "The body cannot be read: it is not UTF-8, nested too deep, or has an endless number."
WELL_FORMED = "Send JSON in UTF-8, of the shape that /openapi.json describes."
#: Of a body that was never read as JSON: a web page can send text/plain anywhere, unasked.
UNDECLARED = "The body is not declared as JSON."
DECLARED = "Send Content-Type: application/json."

#: Seconds after which what is full or away now is worth another try.
_RETRY_AFTER = 1
#: A body may be wrong in a million places; the first few help.
_MAX_ERRORS = 20
_MAX_FIELD = 100

_log = logging.getLogger(__name__)


class FieldError(Frozen):
    """One thing that is wrong with a request: where, and what is allowed there."""

    field: str = Field(examples=["body.text"])
    message: str = Field(examples=["Field required"])


class Problem(Frozen):
    """A refusal. `code` is the same on every way in; `internal` is a fault of the gateway."""

    type: Literal["about:blank"] = "about:blank"
    title: str = Field(examples=["Not Found"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["There is no session default:bob."])
    code: Code | Literal["internal"] = Field(examples=["not_found"])
    hint: str = Field("", examples=["`perdure sessions` lists what there is."])
    errors: tuple[FieldError, ...] = ()


def problem(
    status: int,
    code: Code | Literal["internal"],
    detail: str,
    hint: str = "",
    *,
    errors: tuple[FieldError, ...] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    """A problem as a response."""
    body = Problem(
        title=HTTPStatus(status).phrase,
        status=status,
        detail=_utf8(detail),
        code=code,
        hint=_utf8(hint),
        errors=errors,
    )
    told = dict(headers or {})
    if status in (429, 503):
        told.setdefault("Retry-After", str(_RETRY_AFTER))
    return Response(body.model_dump_json(), status, told, media_type=PROBLEM_JSON)


def refused(error: PerdureError, status: int | None = None) -> Response:
    """A domain error as a response, with the status of its code unless another is given."""
    return problem(status or STATUS[error.code], error.code, error.message, error.hint)


def install(app: FastAPI) -> None:
    """Let every error of `app` be told as a problem."""
    app.add_exception_handler(PerdureError, _on_refusal)
    app.add_exception_handler(RequestValidationError, _on_validation)
    app.add_exception_handler(HTTPException, _on_status)
    app.add_exception_handler(Exception, _on_fault)


async def _on_refusal(_: Request, error: Exception) -> Response:
    assert isinstance(error, PerdureError)
    return refused(error)


async def _on_validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = error.errors()
    if any(one["type"] == "json_invalid" for one in found):
        place = found[0]["loc"][-1]
        reason = found[0].get("ctx", {}).get("error", "it ends early")
        detail = f"The body is not JSON, at character {place}: {reason}."
        return problem(400, Code.INVALID_ARGUMENT, detail)
    if is_undeclared(request, error):
        return problem(415, Code.INVALID_ARGUMENT, UNDECLARED, DECLARED)
    errors = tuple(_field_error(one) for one in found[:_MAX_ERRORS])
    detail = "; ".join(f"{one.field}: {one.message}" for one in errors[:3])
    hint = "/openapi.json describes every request."
    return problem(422, Code.INVALID_ARGUMENT, f"{detail}.", hint, errors=errors)


async def _on_status(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = _CODE_OF_STATUS.get(error.status_code, Code.INVALID_ARGUMENT)
    detail, hint = f"{error.detail}.", ""
    if error.status_code == 400:
        detail, hint = UNREADABLE, WELL_FORMED
    if error.status_code == 404:
        detail = "There is nothing at this path."
        hint = "/openapi.json lists what there is; a / within a session key is written %2F."
    if error.status_code == 413:
        hint = TOO_LARGE
    headers = dict(error.headers or {})
    if error.status_code == 405:
        detail = f"{request.method} is not possible here."
        headers["Allow"] = ", ".join(sorted(_allowed(request)))
    return problem(error.status_code, code, detail, hint, headers=headers)


def _allowed(request: Request) -> set[str]:
    """The methods of all routes at a path; the framework names only those of the first."""
    return {
        method
        for route in iter_route_contexts(request.app.routes)
        if (at := getattr(route, "path_regex", None)) and at.match(request.scope["path"])
        for method in route.methods or ()
    }


async def _on_fault(request: Request, error: Exception) -> Response:
    incident = ULID()
    # The traceback follows in the log: the server writes it for every error that reaches this.
    _log.error("incident %s: %s in %s", incident, type(error).__name__, request.method)
    return problem(
        500,
        "internal",
        f"The gateway failed to answer; this is its fault (incident {incident}).",
        "Sending again with the same Idempotency-Key is safe. The gateway's log has the cause.",
    )


def is_undeclared(request: Request, error: RequestValidationError) -> bool:
    """Whether a body is refused because it does not say that it is JSON."""
    declared = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if declared.startswith("application/") and declared.endswith(("/json", "+json")):
        return False
    return any(one["loc"] == ("body",) for one in error.errors())


def _field_error(error: Mapping[str, Any]) -> FieldError:
    field = _utf8(".".join(map(str, error["loc"])))
    return FieldError(field=field[:_MAX_FIELD], message=_utf8(error["msg"]))


def _utf8(text: str) -> str:
    """`text` without lone surrogates, which JSON can spell and UTF-8 cannot."""
    return text.encode(errors="replace").decode()
