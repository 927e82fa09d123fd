"""The tables of all tenants: where they are, opened when they are needed.

Invariant: a tenant's tables lie in a place of their own, one table a label, and a viewer is handed
those at or below their label and no other.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import os
import re
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.domain.errors import Unavailable
from perdure.domain.labels import Label, can_flow
from perdure.memory import rows
from perdure.memory.shelf import Shelf, reading, writing

if TYPE_CHECKING:
    from lancedb import AsyncConnection

#: The table, beside the tenants' folders, that names them.
_TENANTS = "tenants"

_SLUG = re.compile(r"[^a-z0-9]+")


class Shelves:
    """Opens tables under a URI: a folder, or an object store as `s3://bucket/path`."""

    def __init__(self, uri: str, options: dict[str, str]) -> None:
        self._uri = uri.rstrip("/")
        self._options = options
        self._owner = os.getpid()
        self._connections: dict[str, AsyncConnection] = {}
        self._open: dict[tuple[str, Label], Shelf] = {}

    async def visible(self, tenant: str, label: Label) -> list[Shelf]:
        """The tables of a tenant that may be read at `label`, lowest first."""
        if not _is_there(f"{self._uri}/{folder_of(tenant)}"):
            return []
        with reading():
            names = (await (await self._connection(tenant)).list_tables()).tables
        return [
            await self._opened(tenant, level)
            for level in Label
            if level in names and can_flow(level, label)
        ]

    async def of(self, tenant: str, label: Label) -> Shelf:
        """The table of a label, made if there is none; for the writer's thread alone."""
        known = self._known(tenant, label)
        if known is not None:
            return known
        with writing():
            connection = await self._connection(tenant)
            if label not in (await connection.list_tables()).tables:
                table = await connection.create_table(label, schema=rows.schema())
                # It lets two inserts of one id that meet on an object store see each other.
                await table.set_unenforced_primary_key(["id"])
                await Shelf(table, tenant, label).index()
                await self._register(tenant)
        return await self._opened(tenant, label)

    async def tenants(self) -> list[str]:
        """Every tenant that has a memory."""
        if not _is_there(self._uri):
            return []
        with reading():
            root = await self._connect(self._uri)
            if _TENANTS not in (await root.list_tables()).tables:
                return []
            table = await root.open_table(_TENANTS)
            return sorted(row["tenant"] for row in await table.query().to_list())

    async def _register(self, tenant: str) -> None:
        import pyarrow as pa

        schema = pa.schema([pa.field("tenant", pa.string(), nullable=False)])
        root = await self._connect(self._uri)
        table = await root.create_table(_TENANTS, schema=schema, exist_ok=True)
        named = pa.Table.from_arrays([pa.array([tenant])], schema=schema)
        await table.merge_insert("tenant").when_not_matched_insert_all().execute(named)

    def _known(self, tenant: str, label: Label) -> Shelf | None:
        if self._owner != os.getpid():
            # What was opened before a fork belongs to the parent's threads.
            self._connections, self._open, self._owner = {}, {}, os.getpid()
        return self._open.get((tenant, label))

    async def _opened(self, tenant: str, label: Label) -> Shelf:
        known = self._known(tenant, label)
        if known is None:
            with reading():
                table = await (await self._connection(tenant)).open_table(label)
                version = int((await table.schema()).metadata[b"perdure.schema"])
            if version > rows.SCHEMA_VERSION:
                raise Unavailable(
                    f"The memory was written by a newer Perdure (schema {version}; this one knows "
                    f"{rows.SCHEMA_VERSION}).",
                    "Upgrade this Perdure.",
                )
            known = self._open[tenant, label] = Shelf(table, tenant, label)
        return known

    async def _connection(self, tenant: str) -> AsyncConnection:
        self._known(tenant, Label.PUBLIC)
        if tenant not in self._connections:
            place = f"{self._uri}/{folder_of(tenant)}"
            self._connections[tenant] = await self._connect(place)
        return self._connections[tenant]

    async def _connect(self, place: str) -> AsyncConnection:
        # It takes a second to import: in a thread, so that heartbeats go on.
        lancedb = await asyncio.to_thread(importlib.import_module, "lancedb")
        connection: AsyncConnection = await lancedb.connect_async(
            place,
            # Others write, too: every read looks for their newest version.
            read_consistency_interval=timedelta(0),
            storage_options=self._options or None,
        )
        return connection


def folder_of(tenant: str) -> str:
    """The name of a tenant's folder; no two tenants share one."""
    slug = _SLUG.sub("-", tenant.lower())[:40].strip("-")
    return f"{slug or 'tenant'}-{hashlib.sha256(tenant.encode()).hexdigest()[:12]}"


def _is_there(place: str) -> bool:
    # Connecting would make the folder, and looking must leave no trace.
    return "://" in place or Path(place).is_dir()
