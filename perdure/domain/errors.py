"""The one hierarchy of refusals. Each says what happened, the value, the limit, what to do.

A refusal is a value before it is an exception: `Refusal` is what a model or a client reads,
`PerdureError` carries one through Python code.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict


class Code(StrEnum):
    """The closed set of reasons for which anything in Perdure is refused."""

    INVALID_ARGUMENT = "invalid_argument"
    NOT_FOUND = "not_found"
    UNAUTHENTICATED = "unauthenticated"
    DENIED = "denied"
    LIMIT_EXCEEDED = "limit_exceeded"
    DEADLOCK = "deadlock"
    RATE_LIMITED = "rate_limited"
    TIMEOUT = "timeout"
    CONFLICT = "conflict"
    APPROVAL_REQUIRED = "approval_required"
    UNAVAILABLE = "unavailable"


class Refusal(BaseModel):
    """A refusal as data: `{"code", "message", "hint"}`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    code: Code
    message: str
    hint: str = ""


class PerdureError(Exception):
    """Base of every error Perdure raises on purpose; `refusal` is what the caller may read."""

    code = Code.UNAVAILABLE

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    @property
    def refusal(self) -> Refusal:
        """This error as the value a model or a client reads."""
        return Refusal(code=self.code, message=self.message, hint=self.hint)

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


class InvalidArgument(PerdureError):
    """The caller's input is wrong in itself; the same call never succeeds."""

    code = Code.INVALID_ARGUMENT


class NotFound(PerdureError):
    """What was named does not exist, or may not be seen: the two are one answer."""

    code = Code.NOT_FOUND


class Unauthenticated(PerdureError):
    """Who asks is not known: no key, or none that is good."""

    code = Code.UNAUTHENTICATED


class Denied(PerdureError):
    """Policy forbids it."""

    code = Code.DENIED


class LimitExceeded(PerdureError):
    """A configured limit stands in the way; the message names the limit and the value."""

    code = Code.LIMIT_EXCEEDED


class Deadlock(PerdureError):
    """The wait would close a ring of waits, in which nobody ever answers."""

    code = Code.DEADLOCK


class RateLimited(PerdureError):
    """Too much too fast; the same call succeeds later."""

    code = Code.RATE_LIMITED


class Conflict(PerdureError):
    """The call contradicts what is already recorded."""

    code = Code.CONFLICT


class TimedOut(PerdureError):
    """The wait ended before its answer; what was asked for is still under way."""

    code = Code.TIMEOUT


class Unavailable(PerdureError):
    """A part of the system cannot be reached now."""

    code = Code.UNAVAILABLE


class OutcomeUnknown(Unavailable):
    """It was begun, and nobody knows whether it took effect."""


_BY_CODE: dict[Code, type[PerdureError]] = {
    kind.code: kind
    for kind in (
        InvalidArgument,
        NotFound,
        Unauthenticated,
        Denied,
        LimitExceeded,
        RateLimited,
        Conflict,
        TimedOut,
        Unavailable,
        Deadlock,
    )
}


def from_refusal(refusal: Refusal) -> PerdureError:
    """The exception for a refusal that crossed a process border as data."""
    return _BY_CODE.get(refusal.code, PerdureError)(refusal.message, refusal.hint)
