"""From a model's name to the model, kept for the life of the process.

Invariant: one model and one HTTP client per name and event loop: a client belongs to the loop that
opened its connections.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from perdure.models.prompt import Model
from perdure.models.rehearsal import REHEARSAL, RehearsalModel

if TYPE_CHECKING:
    from perdure.models.provider import ProviderModel


@dataclass
class _Pool:
    models: dict[str, Model] = field(default_factory=dict)
    building: asyncio.Lock = field(default_factory=asyncio.Lock)


_pools: dict[asyncio.AbstractEventLoop, _Pool] = {}


async def resolve(name: str) -> Model:
    """The model called `name`: `rehearsal`, or any pydantic-ai name such as `anthropic:…`.

    Raises:
        ModelFailure: not retryable, for an unknown name (`unknown_model`), a missing key (`auth`)
            or a provider that is not set up (`configuration`).
    """
    if name == REHEARSAL:
        return RehearsalModel()
    pool = _pool()
    if name not in pool.models:
        async with pool.building:
            if name not in pool.models:
                pool.models[name] = await _build(name)
    return pool.models[name]


async def close_models() -> None:
    """Close the HTTP clients of this event loop. A later `resolve` opens new ones."""
    pool = _pools.pop(asyncio.get_running_loop(), None)
    for model in pool.models.values() if pool else ():
        await model.close()


def _pool() -> _Pool:
    loop = asyncio.get_running_loop()
    if loop not in _pools:
        for old in [old for old in _pools if old.is_closed()]:
            del _pools[old]
        _pools[loop] = _Pool()
    return _pools[loop]


async def _build(name: str) -> Model:
    model = await asyncio.to_thread(_import_and_build, name)
    await model.open()
    return model


def _import_and_build(name: str) -> ProviderModel:
    # pydantic-ai and an SDK take two seconds to import: in a thread, so that heartbeats go on, and
    # never where only the rehearsal model is used.
    from perdure.models.provider import ProviderModel

    return ProviderModel(name)
