"""Content that must survive: transcripts, turns, claims and the outbox, over SQLAlchemy.

Invariant: nothing is written twice. Every write is keyed by what it is about: a message by its
id, a step by (session, turn, step), a tool call by (session, turn, step, call).
"""

from perdure.store.database import Database
from perdure.store.store import Store

__all__ = ["Database", "Store"]
