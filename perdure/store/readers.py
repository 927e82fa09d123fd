"""Who looks, and what is there for them.

Invariant: what a reader may not see does not exist in any query made for them: not in a page, not
in a total, not in a score.
"""

from __future__ import annotations

from sqlalchemy import ColumnElement, Table, and_

from perdure.domain.keys import SessionKey
from perdure.domain.labels import Label, can_flow
from perdure.domain.messages import Frozen
from perdure.store.tables import sessions


class Reader(Frozen):
    """A session looks from its tenant and its live label; a person at a gateway from no tenant,
    which is all of them, and the gateway's level."""

    tenant: str | None = None
    level: Label

    @classmethod
    def session(cls, session_key: str, label: Label) -> Reader:
        """The session of this key, at its live label."""
        return cls(tenant=SessionKey.parse(session_key).tenant, level=label)

    @property
    def labels(self) -> tuple[Label, ...]:
        """The labels that may flow to the reader."""
        return tuple(label for label in Label if can_flow(label, self.level))


def seen_by(reader: Reader, of: Table = sessions) -> ColumnElement[bool]:
    """Which rows of `sessions` are there for a reader."""
    seen = of.c.label.in_(reader.labels)
    return seen if reader.tenant is None else and_(seen, of.c.tenant == reader.tenant)
