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
    """One who asks: a person at this machine, the holder of an API key, a service that calls in."""

    #: As the audit trail names them; of a key, its name.
    name: str
    #: The key's public id; None without a key.
    key_id: str | None = None
    #: The one tenant whose sessions there are for them; None is every tenant.
    tenant: str | None = None
    scopes: frozenset[Scope]
    #: The highest label of what they may be told, and of what they may say.
    clearance: Label
    #: Whether every session is there for them, whatever its label, as for a person at this machine.
    #: The words in it are shown up to their clearance all the same.
    overseer: bool = False

    @classmethod
    def local(cls, clearance: Label) -> Caller:
        """Who asks at this machine without a key: all is theirs up to this clearance."""
        everything = frozenset({Scope.ADMIN})
        return cls(name="user", scopes=everything, clearance=clearance, overseer=True)

    def may(self, scope: Scope) -> bool:
        """Whether they may do what `scope` stands for."""
        return scope in self.scopes or Scope.ADMIN in self.scopes

    @property
    def signature(self) -> str:
        """How what they do is signed."""
        return self.name if self.key_id is None else f"{self.name} ({self.key_id})"

    @property
    def identity(self) -> str:
        """What tells this caller from every other, for as long as either is known."""
        return f"caller:{self.name}" if self.key_id is None else f"key:{self.key_id}"
