"""The gateway about itself: is it alive, is it ready, which agents are there.

Invariant: nothing here tells instructions, keys or anything that a session holds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from datetime import timedelta
from typing import Literal

from fastapi import APIRouter
from pydantic import Field

from gateway.http.access import needs, open_to_all
from gateway.http.parts import TheGateway, TheProcess
from gateway.http.problems import Problem
from gateway.http.tags import Tagged
from perdure.domain.access import Scope
from perdure.domain.errors import Unavailable
from perdure.domain.labels import Label
from perdure.domain.messages import Frozen

router = APIRouter(tags=["service"], route_class=Tagged)

#: Seconds for a part to answer; in health it takes milliseconds.
_PATIENCE = 3.0

_log = logging.getLogger(__name__)


class Alive(Frozen):
    """The process answers."""

    status: Literal["alive"] = "alive"


class Ready(Frozen):
    """The parts behind the gateway answer."""

    status: Literal["ready"] = "ready"


class Agent(Frozen):
    """An agent that a session can be started with."""

    name: str = Field(examples=["main"])
    models: tuple[str, ...] = Field(examples=[["rehearsal"]])
    tools: tuple[str, ...] = Field(examples=[["files"]])
    clearance: Label
    default: bool


class AgentList(Frozen):
    """The configured agents."""

    agents: tuple[Agent, ...]


@router.get("/healthz", dependencies=[open_to_all()])
async def alive() -> Alive:
    """Whether the process answers; it asks nobody else."""
    return Alive()


@router.get("/readyz", responses={503: {"model": Problem}}, dependencies=[open_to_all()])
async def ready(process: TheProcess) -> Ready:
    """Whether the store and Temporal answer."""
    client = process.client
    health = client.temporal.service_client.check_health(timeout=timedelta(seconds=_PATIENCE))
    store, temporal = await asyncio.gather(
        _answers("store", client.store.outbox.newest_id()), _answers("Temporal", health)
    )
    away = [name for name, answers in (("the store", store), ("Temporal", temporal)) if not answers]
    if away:
        raise Unavailable(f"No answer from {' and '.join(away)}.", "The gateway's log says why.")
    return Ready()


@router.get("/v1/agents", dependencies=[needs(Scope.CHAT, Scope.READ)])
async def list_agents(gateway: TheGateway) -> AgentList:
    """The configured agents, by name."""
    settings = gateway.client.settings
    return AgentList(
        agents=tuple(
            Agent(
                name=name,
                models=agent.models,
                tools=tuple(agent.tools),
                clearance=agent.clearance,
                default=name == settings.default_agent,
            )
            for name, agent in sorted(settings.agents.items())
        )
    )


async def _answers(name: str, question: Awaitable[object]) -> bool:
    try:
        answer = await asyncio.wait_for(question, _PATIENCE)
    except Exception as error:
        _log.warning("%s does not answer: %s", name, error or type(error).__name__)
        return False
    return answer is not False
