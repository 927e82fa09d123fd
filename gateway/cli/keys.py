"""`perdure keys create`, `list`, `revoke`: who may ask the gateway from elsewhere, and for what.

Invariant: the text of a key is written once, to stdout, when it is made.
"""

from __future__ import annotations

import asyncio
import getpass
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.look import Offset
from gateway.cli.options import AsJson, Home
from gateway.cli.output import console, note, print_json
from perdure.domain.access import Scope
from perdure.domain.errors import InvalidArgument
from perdure.domain.labels import Label

if TYPE_CHECKING:
    from gateway.keys import NewApiKey
    from perdure.store.keys import ApiKey, ApiKeyList

app = typer.Typer()
_keys = typer.Typer(help="API keys of the gateway: make, list and revoke.", no_args_is_help=True)
app.add_typer(_keys, name="keys")

_DURATION = re.compile(r"([1-9][0-9]{0,4})([hd])")


@_keys.command()
def create(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Who uses it; what it does is signed with that.")
    ],
    home: Home = None,
    as_json: AsJson = False,
    scopes: Annotated[
        list[Scope], typer.Option("--scope", help="What it is good for; repeat it.")
    ] = [Scope.CHAT],  # noqa: B006 (typer reads it)
    tenant: Annotated[
        str | None,
        typer.Option("--tenant", metavar="NAME", help="Whose sessions it sees; else 'default'."),
    ] = None,
    all_tenants: Annotated[
        bool, typer.Option("--all-tenants", help="It sees the sessions of every tenant.")
    ] = False,
    clearance: Annotated[
        Label, typer.Option("--clearance", help="The highest label it is told and may send.")
    ] = Label.PUBLIC,
    rate: Annotated[int, typer.Option("--rate", min=1, help="Requests a minute.")] = 600,
    expires: Annotated[
        str | None,
        typer.Option(
            "--expires",
            metavar="WHEN",
            help="When it is over: 12h, 90d, or a date as in 2027-01-31; else never.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Make a key, and show it: the only time."""
    if tenant is not None and all_tenants:
        raise InvalidArgument("--tenant and --all-tenants exclude each other.", "Leave one out.")
    whose = None if all_tenants else "default" if tenant is None else tenant
    until = None if expires is None else _until(expires)
    made = asyncio.run(_create(home, name, scopes, whose, clearance, rate, until))
    if as_json:
        print_json(made)
        return
    console().print(made.text)
    note(f"{made.name} ({made.id}): {_told(made)}.")
    note("It cannot be shown again. Send it as `Authorization: Bearer pdr_…`.")


@_keys.command("list")
def list_(
    home: Home = None,
    as_json: AsJson = False,
    every: Annotated[
        bool, typer.Option("--all", help="Those that are revoked or over, too.")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=200, help="How many.")] = 50,
    offset: Offset = 0,
) -> None:
    """List the keys, newest first, without what is secret of them."""
    page = asyncio.run(_list(home, every, limit, offset))
    if as_json:
        print_json(page)
    else:
        _print(page, every, offset)


@_keys.command()
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The key, as the list shows it.")],
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Make a key good for nothing, at once and for ever."""
    revoked = asyncio.run(_revoke(home, key_id))
    if as_json:
        print_json(revoked)
    else:
        console().print(f"{revoked.name} ({revoked.id}) is revoked.")


async def _create(
    home: Path | None,
    name: str,
    scopes: list[Scope],
    tenant: str | None,
    clearance: Label,
    rate: int,
    expires_at: datetime | None,
) -> NewApiKey:
    from gateway.keys import KeyClient
    from perdure.config import load_settings

    async with KeyClient.open(load_settings(home)) as keys:
        return await keys.create(
            name,
            scopes=scopes,
            tenant=tenant,
            clearance=clearance,
            rate=rate,
            expires_at=expires_at,
            by=_os_user(),
        )


async def _list(home: Path | None, every: bool, limit: int, offset: int) -> ApiKeyList:
    from gateway.keys import KeyClient
    from perdure.config import load_settings

    async with KeyClient.open(load_settings(home)) as keys:
        return await keys.list(every=every, limit=limit, offset=offset)


async def _revoke(home: Path | None, key_id: str) -> ApiKey:
    from gateway.keys import KeyClient
    from perdure.config import load_settings

    async with KeyClient.open(load_settings(home)) as keys:
        return await keys.revoke(key_id, by=_os_user())


def _os_user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "user"


def _until(text: str) -> datetime:
    """The moment that `--expires` means."""
    found = _DURATION.fullmatch(text)
    if found:
        hours = int(found[1]) * (24 if found[2] == "d" else 1)
        return datetime.now(UTC) + timedelta(hours=hours)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgument(
            f"{text!r} is no time.", "Write 12h, 90d, or a date as in 2027-01-31."
        ) from None
    return at if at.tzinfo else at.astimezone()


def _told(key: ApiKey) -> str:
    """What a key is good for."""
    whose = "every tenant" if key.tenant is None else f"tenant {key.tenant}"
    until = f", until {key.expires_at:%Y-%m-%d %H:%M} UTC" if key.expires_at else ""
    return f"{' '.join(key.scopes)}; {whose}; up to {key.clearance}; {key.rate} a minute{until}"


def _print(page: ApiKeyList, every: bool, offset: int) -> None:
    from gateway.cli.tables import columns, print_table
    from gateway.cli.words import ago, printable

    out = console()
    if page.keys:
        names = ("id", "name", "tenant", "scopes", "clearance", "rate", "used", "state")
        table = columns(*names, right=["rate"])
        for key in page.keys:
            table.add_row(
                key.id,
                printable(key.name),
                key.tenant or "(every)",
                " ".join(key.scopes),
                key.clearance,
                f"{key.rate:,}",
                ago(key.last_used) if key.last_used else "never",
                _state(key),
            )
        print_table(out, table)
    seen = offset + len(page.keys)
    if not page.total:
        out.print("There are no keys. `perdure keys create NAME` makes one.")
    elif offset or seen < page.total:
        out.print(f"{offset + 1}–{seen} of {page.total}", style="dim")
    if seen < page.total:
        out.print(
            f"More: perdure keys list{' --all' if every else ''} --offset {seen}", style="dim"
        )


def _state(key: ApiKey) -> str:
    from gateway.cli.words import ago, left

    if key.revoked_at is not None:
        return f"revoked {ago(key.revoked_at)}"
    if key.expires_at is None:
        return "good"
    if not key.is_good(datetime.now(UTC)):
        return f"over {ago(key.expires_at)}"
    return f"good, {left(key.expires_at)} left"
