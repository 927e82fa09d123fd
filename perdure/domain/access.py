"""Who asks, and what they may do.

Invariant: what a caller may see and do follows from this object alone, never from what it sends.
"""

from __future__ import annotations

from enum import StrEnum

from perdure.domain.labels import Label
from perdure.domain.messages import Frozen


class Scope(StrEnum):
    """What a key may be good for. `admin` is good for all of it."""

    #: Send messages, and read the answers to them.
    CHAT = "chat"
    #: Look at sessions, runs, contexts and memory.
    READ = "read"
    #: Interrupt, reset, close, steer, kill, and change memory and schedules.
    STEER = "steer"
    #: Decide what waits for a person.
    APPROVE = "approve"
    #: All of that, and the keys themselves.
    ADMIN = "admin"


class Caller(Frozen):
    """One who asks: a person at this machine, or the holder of an API key."""

    #: As the audit trail names them; of a key, its name.
    name: str
    #: The key's public id; None without a key.
    key_id: str | None = None
    #: The one tenant whose sessions there are for them; None is every tenant.
    tenant: str | None = None
    scopes: frozenset[Scope]
    #: The highest label of what they may be told, and of what they may say.
    clearance: Label

    def may(self, scope: Scope) -> bool:
        """Whether they may do what `scope` stands for."""
        return scope in self.scopes or Scope.ADMIN in self.scopes
