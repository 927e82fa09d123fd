"""The options that the commands of `perdure memory` share, and the client they work with.

Invariant: they mean the same in every one of them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.domain.memory import MemoryType, Trust

if TYPE_CHECKING:
    from gateway.memory import MemoryClient
    from perdure.domain.memory import View

Tenant = Annotated[str, typer.Option("--tenant", metavar="NAME", help="Whose memory.")]
Agent = Annotated[
    str | None,
    typer.Option("--agent", metavar="NAME", help="Only of this agent.", show_default=False),
]
Tags = Annotated[
    list[str] | None,
    typer.Option("--tag", metavar="WORD", help="Only with this tag; may be repeated."),
]
OfType = Annotated[MemoryType | None, typer.Option("--type", help="Only of this type.")]
OfTrust = Annotated[Trust | None, typer.Option("--trust", help="Only of this trust.")]


@asynccontextmanager
async def opened(home: Path | None) -> AsyncIterator[MemoryClient]:
    """A client that needs no cluster, closed when the block ends."""
    from gateway.memory import MemoryClient
    from perdure.config import load_settings

    async with MemoryClient.open(load_settings(home)) as client:
        yield client


def view_of(
    client: MemoryClient,
    tenant: str,
    agent: str | None = None,
    tags: list[str] | None = None,
    memory_type: MemoryType | None = None,
    trust: Trust | None = None,
) -> View:
    """What a person asks for with the options of a command."""
    return client.view(
        tenant, agent=agent, tags=tuple(tags or ()), memory_type=memory_type, trust=trust
    )
