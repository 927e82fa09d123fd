"""API keys for those who administer: made, listed, revoked.

Invariant: nobody makes a key that is good for more than they are themselves, nor sees or revokes
one of another tenant. A key's text is returned once, by `create`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from datetime import datetime

from gateway.bounds import Bounds
from perdure.api_keys import hash_of, new_key
from perdure.audit import AuditEntry
from perdure.config import Settings
from perdure.domain.access import Scope
from perdure.domain.errors import Conflict, InvalidArgument, NotFound
from perdure.domain.keys import SessionKey
from perdure.domain.labels import Label
from perdure.store import Store
from perdure.store.clock import now
from perdure.store.keys import ApiKey, ApiKeyList
from perdure.store.marks import Mark

#: Requests a minute of a key for which nobody says how many.
DEFAULT_RATE = 600
#: The most there can be: ten thousand a second.
MAX_RATE = 600_000
MAX_NAME = 100
#: Keys of one page.
PAGE = 200


class NewApiKey(ApiKey):
    """A key with its text, which nobody can be shown again."""

    text: str


class KeyClient:
    """The keys of an installation, as one caller may handle them."""

    def __init__(self, store: Store, bounds: Bounds) -> None:
        self._store = store
        self._bounds = bounds

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings) -> AsyncIterator[KeyClient]:
        """A client that needs no cluster, closed when the block ends."""
        store = await Store.open(settings.store_url, settings.audit_files)
        try:
            yield cls(store, Bounds(settings.gateway.level))
        finally:
            await store.close()

    async def create(
        self,
        name: str,
        *,
        scopes: Collection[Scope],
        tenant: str | None = None,
        clearance: Label = Label.PUBLIC,
        rate: int = DEFAULT_RATE,
        expires_at: datetime | None = None,
        by: str = "user",
        request_id: str | None = None,
    ) -> NewApiKey:
        """Make a key.

        Args:
            name: what its messages and decisions are signed with.
            scopes: what it is good for.
            tenant: whose sessions there are for it; None is the caller's own, or every tenant.
            clearance: the highest label of what it is told and may say.
            rate: requests a minute.
            expires_at: from when on it is good for nothing.
            by: who makes it; a caller does in their own name.
            request_id: the caller's own; one makes one key at most.

        Raises:
            Conflict: when the request has made a key before: its text is not shown again.
            InvalidArgument: for a name, a tenant, a rate or a time that cannot be.
            Denied: when it would be good for more than the caller is.
        """
        tenant = self._bounds.reader.tenant if tenant is None else tenant
        self._bounds.check_key(tenant, clearance)
        _check(name, scopes, tenant, rate, expires_at)
        by = self._bounds.signed(by)
        text = new_key(f"{by}/{request_id}" if request_id is not None else None)
        key = ApiKey(
            id=text.id,
            name=name,
            tenant=tenant,
            scopes=tuple(sorted(set(scopes))),
            clearance=clearance,
            rate=rate,
            created_at=now(),
            expires_at=expires_at,
        )
        hash = await asyncio.to_thread(hash_of, text)
        if not await self._store.keys.add(key, hash, self._entry("CREATE_KEY", key, by)):
            raise Conflict(
                f"This request made the key {key.id} before; its text is not shown again.",
                "Revoke that key, and make another with another request.",
            )
        return NewApiKey(**key.model_dump(), text=str(text))

    async def list(
        self, *, every: bool = False, limit: int = 50, offset: int = 0, mark: Mark | None = None
    ) -> ApiKeyList:
        """A page of keys, newest first; `every` has those that are revoked or over, too.

        Raises:
            InvalidArgument: for a limit or an offset out of range.
        """
        if not 1 <= limit <= PAGE or offset < 0:
            raise InvalidArgument(
                f"limit {limit}, offset {offset} are out of range.",
                f"limit is 1 to {PAGE}, offset 0 or more.",
            )
        return await self._store.keys.list(
            tenant=self._bounds.reader.tenant, every=every, limit=limit, offset=offset, mark=mark
        )

    async def get(self, key_id: str) -> ApiKey:
        """A key, good or not.

        Raises:
            NotFound: when there is none of that id.
        """
        kept = await self._store.keys.get(key_id)
        if kept is None or self._bounds.reader.tenant not in (None, kept.key.tenant):
            raise NotFound(f"There is no key {key_id[:40]!r}.", "`perdure keys list` has the ids.")
        return kept.key

    async def revoke(self, key_id: str, *, by: str = "user") -> ApiKey:
        """Make a key good for nothing, at once and for ever; the second time changes nothing.

        Raises:
            NotFound: when there is none of that id.
        """
        key = await self.get(key_id)
        return await self._store.keys.revoke(key_id, self._entry("REVOKE_KEY", key, by)) or key

    def _entry(self, decision: str, key: ApiKey, by: str) -> AuditEntry:
        told = key.model_dump(mode="json", include={"id", "name", "tenant", "scopes", "rate"})
        return AuditEntry(
            hook="ACCESS",
            session_key="",
            decision=decision,
            decided_by=f"person:{self._bounds.signed(by)}",
            label_before=key.clearance,
            label_after=key.clearance,
            arguments=told,
        )


def _check(
    name: str,
    scopes: Collection[Scope],
    tenant: str | None,
    rate: int,
    expires_at: datetime | None,
) -> None:
    if not name.strip() or not name.isprintable() or len(name) > MAX_NAME:
        raise InvalidArgument(
            f"A key is named with 1 to {MAX_NAME} printable characters.", "Name who uses it."
        )
    if not scopes:
        raise InvalidArgument("The key would be good for nothing.", f"Scopes: {', '.join(Scope)}.")
    if tenant is not None and not _is_tenant(tenant):
        raise InvalidArgument(
            f"{tenant[:40]!r} is no tenant.",
            "It is what keys of sessions begin with, as default is in default:bob.",
        )
    if not 1 <= rate <= MAX_RATE:
        raise InvalidArgument(f"The rate {rate} is out of range.", f"It is 1 to {MAX_RATE}.")
    if expires_at is not None and (expires_at.tzinfo is None or expires_at <= now()):
        raise InvalidArgument(
            f"The key would be over since {expires_at}.", "Give a time to come, with its zone."
        )


def _is_tenant(word: str) -> bool:
    try:
        return SessionKey.parse(f"{word}:x").tenant == word
    except InvalidArgument:
        return False
