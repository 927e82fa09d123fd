"""Who looks, and what is there for them.

Invariant: what a reader may not see does not exist in any query made for them: not in a page, not
in a total, not in a score.
"""

from __future__ import annotations

from sqlalchemy import ColumnElement, and_, or_, select

from perdure.domain.keys import SessionKey
from perdure.domain.labels import Label, can_flow
from perdure.domain.messages import Frozen
from perdure.store.key_tables import session_callers
from perdure.store.tables import sessions


class Reader(Frozen):
    """Whoever looks at sessions and reads their messages. `tenant` None is all tenants."""

    #: The highest label of the words they may read.
    level: Label
    #: The highest label of the sessions that are there for them.
    sees: Label
    tenant: str | None = None
    #: The reader's own session, which is there for it whatever its label has become meanwhile.
    own: str | None = None
    #: Who asks from outside: the sessions that this caller has written to are there for it too,
    #: whatever their labels have become meanwhile.
    caller: str | None = None

    @classmethod
    def session(cls, session_key: str, label: Label) -> Reader:
        """The session of this key, at its live label: it sees and reads up to it, its tenant's."""
        tenant = SessionKey.parse(session_key).tenant
        return cls(level=label, sees=label, tenant=tenant, own=session_key)

    @classmethod
    def gateway(cls, level: Label) -> Reader:
        """Who asks at a gateway of this level: it looks after every session, and shows no words
        above its level."""
        return cls(level=level, sees=Label.RESTRICTED)

    @property
    def sees_all(self) -> bool:
        """Whether every session of the store is there for it."""
        return self.tenant is None and self.sees is Label.RESTRICTED


def up_to(level: Label) -> list[Label]:
    """The labels that may flow to `level`."""
    return [label for label in Label if can_flow(label, level)]


def seen_by(reader: Reader) -> ColumnElement[bool]:
    """Which rows of `sessions` are there for a reader."""
    seen: ColumnElement[bool] = sessions.c.label.in_(up_to(reader.sees))
    if reader.own is not None:
        # A call beside this one may have raised the session just now.
        seen = or_(seen, sessions.c.session_key == reader.own)
    if reader.caller is not None:
        written_to = select(session_callers.c.session_key).where(
            session_callers.c.session_key == sessions.c.session_key,
            session_callers.c.caller == reader.caller,
        )
        seen = or_(seen, written_to.exists())
    return seen if reader.tenant is None else and_(seen, sessions.c.tenant == reader.tenant)
