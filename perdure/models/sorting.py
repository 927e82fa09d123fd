"""Sorts whatever a provider, its SDK or the network throws into a `ModelFailure`.

Invariant: this is the one place that knows the exceptions of pydantic-ai; nothing that a model
call can raise, cancellation aside, gets past it unsorted.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from urllib.parse import urlsplit

import httpx2
from pydantic_ai import exceptions as ai

from perdure.models.failure import FailureKind, ModelFailure, failure_of

# The first that fits decides, so a subclass stands before its base.
_KINDS: tuple[tuple[type[Exception], FailureKind], ...] = (
    (ai.ModelRateLimitError, FailureKind.RATE_LIMIT),
    (ai.ModelQuotaExceededError, FailureKind.QUOTA),
    (ai.ModelUnavailableError, FailureKind.OVERLOADED),
    (ai.ModelServerError, FailureKind.SERVER_ERROR),
    (ai.ModelTimeoutError, FailureKind.TIMEOUT),
    (ai.ModelRequestTimeout, FailureKind.TIMEOUT),
    (ai.ModelConnectionError, FailureKind.CONNECTION),
    (ai.ModelAuthenticationError, FailureKind.AUTH),
    (ai.ModelNotFoundError, FailureKind.UNKNOWN_MODEL),
    (ai.ModelContextWindowExceededError, FailureKind.CONTEXT_OVERFLOW),
    (ai.ModelRequestRejectedError, FailureKind.BAD_REQUEST),
    (ai.ContentFilterError, FailureKind.REFUSED),
    (ai.UnexpectedModelBehavior, FailureKind.BAD_RESPONSE),
    (ai.UserError, FailureKind.CONFIGURATION),
    (httpx2.TimeoutException, FailureKind.TIMEOUT),
    (httpx2.HTTPError, FailureKind.CONNECTION),
    (httpx2.StreamError, FailureKind.CONNECTION),
)

#: Statuses without a category of their own that a retry may cure: request timeout, conflict
#: (a lock at the provider), too early.
_PASSING_STATUSES = {
    408: FailureKind.TIMEOUT,
    409: FailureKind.SERVER_ERROR,
    425: FailureKind.SERVER_ERROR,
}

_KEY_VARIABLES = {
    "openai": "OPENAI_API_KEY",
    "openai-chat": "OPENAI_API_KEY",
    "openai-responses": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "google": "GOOGLE_API_KEY",
}

_MISSING_VARIABLE = re.compile(r"[Ss]et the `([A-Z0-9_]+)` environment variable")


def sort_call_error(model: str, error: Exception, address: str = "") -> ModelFailure:
    """The failure behind an exception of a model call to the base URL `address`."""
    kind = _kind(error)
    status = error.status_code if isinstance(error, ai.ModelHTTPError) else None
    retryable: bool | None = None
    hint = ""
    if isinstance(error, ai.ModelHTTPError):
        retryable = error.provider_retry_hint
        if error.suggested_model_id:
            hint = f"Did you mean {error.suggested_model_id}?"
    if kind is FailureKind.AUTH and (variable := _KEY_VARIABLES.get(model.partition(":")[0])):
        hint = f"Check the key in {variable}."
    elif kind is FailureKind.CONNECTION and (place := _place(address)):
        hint = f"Check that {place} can be reached from this machine."
    return failure_of(
        model,
        kind,
        _words(error),
        status=status,
        retryable=retryable,
        retry_after=_retry_after(error),
        hint=hint,
    )


def sort_setup_error(model: str, error: Exception) -> ModelFailure:
    """The failure behind an exception that came while the model was looked up and built."""
    words = str(error)
    if missing := _MISSING_VARIABLE.search(words):
        variable = missing[1]
        kind = FailureKind.AUTH if re.search("KEY|TOKEN", variable) else FailureKind.CONFIGURATION
        return failure_of(
            model, kind, f"{variable} is not set", hint=f"Set the environment variable {variable}."
        )
    if isinstance(error, ai.UserError) and words.startswith("Unknown model"):
        return failure_of(model, FailureKind.UNKNOWN_MODEL, words)
    if isinstance(error, ImportError):
        provider = model.partition(":")[0]
        return failure_of(
            model,
            FailureKind.CONFIGURATION,
            f"the package of the provider {provider!r} is not installed",
            hint=f'Install it: pip install "pydantic-ai-slim[{provider}]".',
        )
    return failure_of(model, FailureKind.CONFIGURATION, f"{type(error).__name__}: {words}")


def broken_stream(model: str) -> ModelFailure:
    """The failure of a stream that ended before the provider said that the answer is complete."""
    return failure_of(
        model,
        FailureKind.CONNECTION,
        "the stream ended before the answer was complete",
        hint="Try again; if it stays so, look for a proxy that cuts long responses.",
    )


def _kind(error: Exception) -> FailureKind:
    for kind_of_error, kind in _KINDS:
        if isinstance(error, kind_of_error):
            return kind
    if isinstance(error, ai.ModelHTTPError):
        return _PASSING_STATUSES.get(error.status_code, FailureKind.BAD_REQUEST)
    if isinstance(error, ai.ModelAPIError):
        # No category: an error object without a code in a stream, or a body that is not JSON.
        return FailureKind.SERVER_ERROR if error.in_stream else FailureKind.BAD_RESPONSE
    return FailureKind.UNEXPECTED


def _words(error: Exception) -> str:
    if isinstance(error, ai.ModelHTTPError):
        return _words_of_body(error.body) or _phrase(error.status_code)
    if _kind(error) is FailureKind.UNEXPECTED:
        return f"{type(error).__name__}: {error}"
    # An SDK says "Connection error."; why stands in the exception it was raised from.
    words = [str(error)]
    cause = error.__cause__
    while cause is not None:
        if str(cause) and str(cause) not in words:
            words.append(str(cause))
        cause = cause.__cause__
    return " ".join(words) if any(words) else type(error).__name__


def _words_of_body(body: object) -> str:
    if isinstance(body, str):
        return body
    if isinstance(body, dict):
        for key in ("error", "message", "detail"):
            if words := _words_of_body(body.get(key)):
                return words
    return ""


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return f"HTTP {status}"


def _retry_after(error: Exception) -> float | None:
    if not isinstance(error, ai.ModelAPIError) or error.retry_after is not None:
        return getattr(error, "retry_after", None)
    headers = error.headers if isinstance(error, ai.ModelHTTPError) else None
    try:
        # pydantic-ai reads whole seconds and dates; some gateways send fractions.
        seconds = float((headers or {}).get("retry-after", ""))
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None


def _place(address: str) -> str:
    """Scheme, host and port of `address`, without any user, password or path."""
    try:
        parts = urlsplit(address)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return ""
    return f"{parts.scheme}://{parts.hostname}{port}" if parts.hostname else ""
