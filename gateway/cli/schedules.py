"""`perdure schedule …`: messages and sub-agents at set times.

Invariant: a schedule is named by its name and its tenant, as `list` shows them.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.manage import confirm, with_client
from gateway.cli.options import AsJson, Home, Key
from gateway.cli.output import console, print_json
from perdure.domain.errors import InvalidArgument
from perdure.domain.labels import Label
from perdure.domain.schedules import Overlap, ScheduleKind

if TYPE_CHECKING:
    from gateway.schedule_views import ScheduleList, ScheduleView

app = typer.Typer()
_schedules = typer.Typer(
    help="Have a session told something, or a sub-agent spawned, at set times.",
    no_args_is_help=True,
)
app.add_typer(_schedules, name="schedule")

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule.", show_default=False)]
Tenant = Annotated[
    str | None, typer.Option("--tenant", metavar="NAME", help="Whose; else default's.")
]


@_schedules.command()
def add(
    name: Name,
    key: Key,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The message, or the task.")],
    home: Home = None,
    as_json: AsJson = False,
    cron: Annotated[
        str | None,
        typer.Option("--cron", metavar="EXPR", help='As in "0 9 * * MON-FRI", or @daily.'),
    ] = None,
    every: Annotated[
        str | None, typer.Option("--every", metavar="TIME", help="As in 90s, 15m, 2h or 1d.")
    ] = None,
    timezone: Annotated[
        str,
        typer.Option("--timezone", metavar="ZONE", help="Where --cron is read: Europe/Berlin."),
    ] = "UTC",
    spawn: Annotated[
        bool, typer.Option("--spawn", help="Spawn a sub-agent with the text as its task.")
    ] = False,
    agent: Annotated[
        str | None,
        typer.Option("--agent", metavar="NAME", help="Who answers, or which agent is spawned."),
    ] = None,
    label: Annotated[Label, typer.Option("--label", help="The level of the text.")] = Label.PUBLIC,
    overlap: Annotated[
        Overlap, typer.Option("--overlap", help="What to do while an earlier message still waits.")
    ] = Overlap.SKIP,
    catch_up: Annotated[
        str, typer.Option("--catch-up", metavar="TIME", help="How old a missed time is made up.")
    ] = "10m",
    paused: Annotated[bool, typer.Option("--paused", help="Begin paused.")] = False,
) -> None:
    """Add a schedule."""
    kind = ScheduleKind.SPAWN if spawn else ScheduleKind.MESSAGE
    view = asyncio.run(
        with_client(
            home,
            lambda client: client.schedules.add(
                name,
                key,
                text,
                cron=cron,
                every=None if every is None else _seconds(every),
                timezone=timezone,
                kind=kind,
                agent=agent,
                label=label,
                overlap=overlap,
                catch_up=_seconds(catch_up),
                paused=paused,
            ),
        )
    )
    _show(view, as_json)


@_schedules.command("list")
def list_(
    home: Home = None,
    as_json: AsJson = False,
    tenant: Annotated[
        str | None, typer.Option("--tenant", metavar="NAME", help="Only those of this tenant.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100, help="How many.")] = 50,
    offset: Annotated[int, typer.Option("--offset", min=0, help="How many to skip.")] = 0,
) -> None:
    """List schedules with their next times."""
    page = asyncio.run(
        with_client(
            home,
            lambda client: client.schedules.list(tenant=tenant, limit=limit, offset=offset),
        )
    )
    if as_json:
        print_json(page)
    else:
        _print_list(page, offset)


@_schedules.command()
def show(name: Name, home: Home = None, as_json: AsJson = False, tenant: Tenant = None) -> None:
    """Show a schedule: what it does, when, and what it did."""
    _show(
        asyncio.run(with_client(home, lambda client: client.schedules.get(name, tenant=tenant))),
        as_json,
    )


@_schedules.command()
def pause(
    name: Name,
    home: Home = None,
    as_json: AsJson = False,
    tenant: Tenant = None,
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="Why.")] = "",
) -> None:
    """Let its times pass until it is resumed; they are not made up for."""
    paused = with_client(
        home, lambda client: client.schedules.pause(name, tenant=tenant, note=note)
    )
    _show(asyncio.run(paused), as_json)


@_schedules.command()
def resume(
    name: Name,
    home: Home = None,
    as_json: AsJson = False,
    tenant: Tenant = None,
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="Why.")] = "",
) -> None:
    """Go on from its next time."""
    resumed = with_client(
        home, lambda client: client.schedules.resume(name, tenant=tenant, note=note)
    )
    _show(asyncio.run(resumed), as_json)


@_schedules.command()
def trigger(name: Name, home: Home = None, as_json: AsJson = False, tenant: Tenant = None) -> None:
    """Do it now, once, whether it is paused or not."""
    done = with_client(home, lambda client: client.schedules.trigger(name, tenant=tenant))
    _show(asyncio.run(done), as_json)


@_schedules.command()
def remove(
    name: Name,
    home: Home = None,
    as_json: AsJson = False,
    tenant: Tenant = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask whether to do it.")] = False,
) -> None:
    """Remove a schedule; what it has sent stays sent."""
    confirm(yes, f"Remove the schedule {name}?")
    asyncio.run(with_client(home, lambda client: client.schedules.remove(name, tenant=tenant)))
    if as_json:
        print_json({"name": name, "removed": True})
    else:
        console().print(f"The schedule {name} is removed.")


def _seconds(text: str) -> float:
    found = _DURATION.fullmatch(text.strip())
    if not found:
        raise InvalidArgument(
            f"{text[:32]!r} is not a time.", "Times are as in 90s, 15m, 2h or 1d."
        )
    return float(found[1]) * _UNITS[found[2] or "s"]


def _show(view: ScheduleView, as_json: bool) -> None:
    if as_json:
        print_json(view)
        return
    from gateway.cli.tables import fields, print_table
    from gateway.cli.words import one_line, printable

    table = fields()
    table.add_row("schedule", f"{view.name} ({view.state})")
    table.add_row("session", printable(view.session_key))
    table.add_row("does", view.kind + (f" of agent {view.agent}" if view.agent else ""))
    table.add_row("text", one_line(view.text, 400))
    table.add_row("when", _when(view))
    table.add_row("next", ", ".join(f"{at:%Y-%m-%d %H:%M:%S} UTC" for at in view.next_at) or "–")
    table.add_row("times", str(view.times))
    print_table(console(), table)


def _print_list(page: ScheduleList, offset: int) -> None:
    from gateway.cli.tables import columns, print_table
    from gateway.cli.words import printable

    out = console()
    if not page.total:
        out.print("There are no schedules. perdure schedule add --help")
        return
    table = columns("name", "tenant", "state", "session", "when", "next", "times", right=["times"])
    for view in page.schedules:
        coming = f"{view.next_at[0]:%Y-%m-%d %H:%M:%S}" if view.next_at else "–"
        key = printable(view.session_key)
        table.add_row(view.name, view.tenant, view.state, key, _when(view), coming, str(view.times))
    print_table(out, table)
    seen = offset + len(page.schedules)
    if seen < page.total:
        out.print(f"More: perdure schedule list --offset {seen}", style="dim")


def _when(view: ScheduleView) -> str:
    if view.cron is None:
        return f"every {view.every:g} s"
    return f"{view.cron} ({view.timezone})"
