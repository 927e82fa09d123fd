"""API keys as rows: made, listed, revoked, and when each was last used.

Invariant: a key is never deleted and its hash never changes, so whatever was done with it stays
named. A decision about a key is in the audit trail with the change.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, func, insert, or_, select, update

from perdure.audit import AuditEntry
from perdure.domain.access import Scope
from perdure.domain.labels import Label
from perdure.domain.messages import Frozen
from perdure.store.clock import now
from perdure.store.database import Database
from perdure.store.key_tables import api_keys
from perdure.store.marks import Mark, after
from perdure.store.trails import Trail

#: How exactly it is known when a key was last used: a write for each request would be the most of
#: its cost.
_COARSE = timedelta(minutes=1)

_BY_ID = select(api_keys)


class ApiKey(Frozen):
    """A key, without anything secret. `tenant` None is every tenant, `rate` is requests a minute;
    `last_used` is right to the minute."""

    id: str
    name: str
    tenant: str | None
    scopes: tuple[Scope, ...]
    clearance: Label
    rate: int
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    last_used: datetime | None = None

    def is_good(self, at: datetime) -> bool:
        """Whether it opens anything at a moment."""
        return self.revoked_at is None and (self.expires_at is None or at < self.expires_at)


class ApiKeyList(Frozen):
    """A page of keys, newest first, and how many there are in all."""

    keys: tuple[ApiKey, ...]
    total: int


class Kept(Frozen):
    """A key and what is kept of its secret."""

    key: ApiKey
    hash: str


class Keys:
    """The keys of an installation."""

    def __init__(self, database: Database, trail: Trail) -> None:
        self._database = database
        self._trail = trail
        #: When each key was last used through this object, as far as it was written.
        self._used: dict[str, datetime] = {}

    async def add(self, key: ApiKey, hash: str, entry: AuditEntry) -> bool:
        """Keep a new key; False when there is one of its id."""
        return await self._database.write(_add, self._trail, key, hash, entry)

    async def get(self, key_id: str) -> Kept | None:
        """A key by its id, good or not."""
        return await self._database.read(_get, key_id)

    async def list(
        self,
        *,
        tenant: str | None = None,
        every: bool = False,
        limit: int = 50,
        offset: int = 0,
        mark: Mark | None = None,
    ) -> ApiKeyList:
        """A page of keys, newest first: of a tenant or of all, those that are good or every one.
        With a mark, it begins after the key of that time and id."""
        return await self._database.read(_list, tenant, every, limit, offset, mark)

    async def revoke(self, key_id: str, entry: AuditEntry) -> ApiKey | None:
        """Make a key good for nothing; the key, None when there is none of that id. The second
        time changes nothing."""
        return await self._database.write(_revoke, self._trail, key_id, entry)

    async def used(self, key: ApiKey) -> None:
        """Remember that a key is used now, if that was not known to the minute."""
        known = max((at for at in (key.last_used, self._used.get(key.id)) if at), default=None)
        if known is None or now() - known >= _COARSE:
            self._used[key.id] = now()
            await self._database.write(_used, key.id)


def _add(connection: Connection, trail: Trail, key: ApiKey, hash: str, entry: AuditEntry) -> bool:
    if _get(connection, key.id) is not None:
        return False
    trail.append(connection, entry)
    connection.execute(insert(api_keys).values(**key.model_dump(), hash=hash))
    return True


def _get(connection: Connection, key_id: str) -> Kept | None:
    row = connection.execute(_BY_ID.where(api_keys.c.id == key_id)).one_or_none()
    return None if row is None else Kept(key=_key(row), hash=row.hash)


def _list(
    connection: Connection,
    tenant: str | None,
    every: bool,
    limit: int,
    offset: int,
    mark: Mark | None,
) -> ApiKeyList:
    conditions: list[ColumnElement[bool]] = []
    if tenant is not None:
        conditions.append(api_keys.c.tenant == tenant)
    if not every:
        lasts = or_(api_keys.c.expires_at.is_(None), api_keys.c.expires_at > now())
        conditions += [api_keys.c.revoked_at.is_(None), lasts]
    query = (
        select(api_keys)
        .where(*conditions)
        .order_by(api_keys.c.created_at.desc(), api_keys.c.id)
        .limit(limit)
        .offset(offset)
    )
    if mark is not None:
        query = query.where(after(mark, api_keys.c.created_at, api_keys.c.id))
    total = connection.scalar(select(func.count()).select_from(api_keys).where(*conditions))
    return ApiKeyList(keys=tuple(map(_key, connection.execute(query))), total=total or 0)


def _revoke(connection: Connection, trail: Trail, key_id: str, entry: AuditEntry) -> ApiKey | None:
    found = _get(connection, key_id)
    if found is None:
        return None
    if found.key.revoked_at is not None:
        return found.key
    trail.append(connection, entry)
    revoked = now()
    connection.execute(update(api_keys).where(api_keys.c.id == key_id).values(revoked_at=revoked))
    return found.key.model_copy(update={"revoked_at": revoked})


def _used(connection: Connection, key_id: str) -> None:
    connection.execute(update(api_keys).where(api_keys.c.id == key_id).values(last_used=now()))


def _key(row: Row[Any]) -> ApiKey:
    return ApiKey.model_validate({name: getattr(row, name) for name in ApiKey.model_fields})
