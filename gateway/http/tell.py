"""Telling over HTTP: one session says something to another, because a person wants it to.

Invariant: the message is the first session's, at its label and under the rules for what sessions
send each other. Whoever asked is told what came of it, however long the wait was to be.
"""

from __future__ import annotations

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from gateway.http.access import needs
from gateway.http.acting import RequestKey
from gateway.http.parts import KeyInPath, TheGateway, problems, while_wanted
from perdure.domain.access import Scope
from perdure.domain.exchanges import ExchangeResult, Mode

router = APIRouter(prefix="/v1/sessions/{key}", tags=["messages"])

#: The longest exchange, in seconds.
_LONGEST = 3_600


class Telling(BaseModel):
    """What one session is to say to another."""

    model_config = ConfigDict(extra="forbid")

    to: str = Field(description="The key of the session that is told.", examples=["default:alice"])
    text: str = Field(description="Up to `limits.message_bytes` bytes of UTF-8.")
    mode: Mode = Field(
        Mode.FIRE_AND_FORGET,
        description="Whether to wait for the answer, or to let the two talk for some turns.",
    )
    timeout: float = Field(
        60,
        gt=0,
        le=_LONGEST,
        allow_inf_nan=False,
        strict=True,
        description="Seconds for all of it.",
    )
    max_turns: int = Field(
        3, ge=1, le=20, strict=True, description="Of a `ping-pong`, after the first answer."
    )


@router.post(
    "/tell",
    responses=problems(400, 403, 404, 409, 429),
    dependencies=[needs(Scope.STEER)],
)
async def tell_session(
    key: KeyInPath,
    telling: Telling,
    gateway: TheGateway,
    request: Request,
    request_key: RequestKey = None,
) -> ExchangeResult:
    """Let this session say something to another, and wait for what comes back as `mode` says.

    With an `Idempotency-Key`, the message is sent once: who sends it again after its turn has begun
    learns that it was delivered, and finds the answer under the turns of the session told.
    """
    work = gateway.client.tell(
        key,
        telling.to,
        telling.text,
        mode=telling.mode,
        timeout=telling.timeout,
        max_turns=telling.max_turns,
        message_id=request_key,
    )
    return await while_wanted(work, gateway.stopping, caller=request)
