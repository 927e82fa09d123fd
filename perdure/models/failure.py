"""Why there is no answer: one sorted failure for every provider.

Invariant: a `ModelFailure` says which model, in which words of the provider, whether the same call
may succeed later and when, and what to do. No secret is in it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from enum import StrEnum

from perdure.domain.errors import Code, PerdureError

#: What of a provider's words is kept: enough for any sentence, too little for an HTML page.
WORDS_LIMIT = 300


class FailureKind(StrEnum):
    """The closed set of reasons for which a model gives no answer."""

    RATE_LIMIT = "rate_limit"
    OVERLOADED = "overloaded"
    SERVER_ERROR = "server_error"
    TIMEOUT = "timeout"
    CONNECTION = "connection"
    BAD_RESPONSE = "bad_response"
    QUOTA = "quota"
    AUTH = "auth"
    CONFIGURATION = "configuration"
    UNKNOWN_MODEL = "unknown_model"
    CONTEXT_OVERFLOW = "context_overflow"
    BAD_REQUEST = "bad_request"
    REFUSED = "refused"
    UNEXPECTED = "unexpected"


#: Failures after which the same call may succeed.
RETRYABLE = frozenset(
    {
        FailureKind.RATE_LIMIT,
        FailureKind.OVERLOADED,
        FailureKind.SERVER_ERROR,
        FailureKind.TIMEOUT,
        FailureKind.CONNECTION,
        FailureKind.BAD_RESPONSE,
    }
)

_CODES = {
    FailureKind.RATE_LIMIT: Code.RATE_LIMITED,
    FailureKind.TIMEOUT: Code.TIMEOUT,
    FailureKind.QUOTA: Code.LIMIT_EXCEEDED,
    FailureKind.CONTEXT_OVERFLOW: Code.LIMIT_EXCEEDED,
    FailureKind.AUTH: Code.DENIED,
    FailureKind.REFUSED: Code.DENIED,
    FailureKind.UNKNOWN_MODEL: Code.NOT_FOUND,
    FailureKind.CONFIGURATION: Code.INVALID_ARGUMENT,
    FailureKind.BAD_REQUEST: Code.INVALID_ARGUMENT,
}

_HINTS = {
    FailureKind.RATE_LIMIT: "Wait a little; the same call succeeds later.",
    FailureKind.OVERLOADED: "Wait a little, or name a fallback model for the agent.",
    FailureKind.SERVER_ERROR: "Try again, or name a fallback model for the agent.",
    FailureKind.TIMEOUT: "Try again, or name a faster model.",
    FailureKind.CONNECTION: "Check the network and the provider's base URL.",
    FailureKind.BAD_RESPONSE: "Check that the base URL leads to the provider, not to a page.",
    FailureKind.QUOTA: "Top up the provider account or raise its limit; waiting does not help.",
    FailureKind.AUTH: "Check the API key in the provider's environment variable.",
    FailureKind.CONFIGURATION: "Complete the provider's configuration.",
    FailureKind.UNKNOWN_MODEL: "Write the model as provider:name, or `rehearsal`.",
    FailureKind.CONTEXT_OVERFLOW: "Lower the agent's context_window, or name a larger model.",
    FailureKind.BAD_REQUEST: "The same request never succeeds; read the provider's words.",
    FailureKind.REFUSED: "The provider's filter refused the content; put it differently.",
    FailureKind.UNEXPECTED: "Look for the cause in the worker's log.",
}

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
_SECRET_FORM = re.compile(r"\b(?:sk|pk|rk|gsk|xai)-[\w*.-]{6,}|\bAIza[\w-]{20,}|\bBearer\s+\S+")
_TAG = re.compile(r"<[^<>]{0,500}>")


class ModelFailure(PerdureError):
    """A model, or every model of a chain, gave no answer.

    Attributes:
        kind: the reason.
        brief: the message without the provider's words, which may quote the conversation.
        retryable: whether the same call may succeed later.
        retry_after: the seconds the provider asked to wait, where it did.
        models: the names of the models that were tried.
    """

    def __init__(
        self,
        kind: FailureKind,
        message: str,
        *,
        models: Sequence[str],
        brief: str = "",
        retryable: bool | None = None,
        retry_after: float | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(message, hint or _HINTS[kind])
        self.code = _CODES.get(kind, Code.UNAVAILABLE)
        self.kind = kind
        self.models = tuple(models)
        self.brief = brief or f"{', '.join(models)}: {kind}."
        self.retryable = kind in RETRYABLE if retryable is None else retryable
        self.retry_after = retry_after if self.retryable else None

    def without_words(self) -> ModelFailure:
        """The same failure, without what a provider said of it."""
        return ModelFailure(
            self.kind,
            f"The model {', '.join(self.models)} failed ({self.kind}); its words are withheld.",
            models=self.models,
            retryable=self.retryable,
            retry_after=self.retry_after,
            hint=_HINTS[self.kind],
        )


def failure_of(
    model: str,
    kind: FailureKind,
    words: str,
    *,
    status: int | None = None,
    retryable: bool | None = None,
    retry_after: float | None = None,
    hint: str = "",
) -> ModelFailure:
    """The failure of one model, in the provider's `words`, with the HTTP `status` if any."""
    where = f"{kind}, HTTP {status}" if status else str(kind)
    if retry_after and not hint:
        hint = f"The provider asks to wait {retry_after:g} s."
    brief = f"The model {model} failed ({where})"
    return ModelFailure(
        kind,
        f"{brief}: {clean(words)}",
        models=(model,),
        brief=f"{brief}.",
        retryable=retryable,
        retry_after=retry_after,
        hint=hint,
    )


def failure_of_all(failures: Sequence[ModelFailure]) -> ModelFailure:
    """What the failures of several models amount to: worth a retry if any of them is.

    The wait is the shortest that a retryable one asked for.
    """
    retryable = [failure for failure in failures if failure.retryable]
    chosen = (retryable or list(failures))[0]
    waits = [failure.retry_after for failure in retryable if failure.retry_after is not None]
    tried = tuple(model for failure in failures for model in failure.models)
    none = f"None of {len(failures)} models answered."
    return ModelFailure(
        chosen.kind,
        f"{none} {'; '.join(failure.message for failure in failures)}",
        models=tried,
        brief=f"{none} {' '.join(failure.brief for failure in failures)}",
        retryable=bool(retryable),
        retry_after=min(waits, default=None),
        hint=chosen.hint,
    )


def clean(words: str) -> str:
    """`words` on one line, without markup and secrets, cut to `WORDS_LIMIT` characters."""
    # Secrets go before the cut: half of one would no longer be recognised.
    text = _without_secrets(_TAG.sub(" ", words[:20_000]))
    text = " ".join(text.split()) or "no explanation was given"
    return text if len(text) <= WORDS_LIMIT else f"{text[: WORDS_LIMIT - 1]}…"


def _without_secrets(text: str) -> str:
    for name, value in os.environ.items():
        if len(value) >= 8 and _SECRET_NAME.search(name):
            text = text.replace(value, "[secret]")
    return _SECRET_FORM.sub("[secret]", text)
