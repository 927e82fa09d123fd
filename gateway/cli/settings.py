"""`perdure init`, `config`, `doctor`: what is set, where it came from, and whether it works.

Invariant: secrets are masked before they get here; nothing here starts, calls or pays for anything.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.options import AsJson, Home
from gateway.cli.output import console, print_json

if TYPE_CHECKING:
    from gateway.cli.checks import Check

app = typer.Typer()

#: A longer value is cut for people; `--json` has it all.
_VALUE_LENGTH = 60
_MARKS = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "fail": ("✗", "red")}


@app.command()
def init(home: Home = None, as_json: AsJson = False) -> None:
    """Write a commented perdure.toml into the home folder, where there is none yet."""
    from perdure.config import home_folder, write_default

    path = write_default(home_folder(home))
    if as_json:
        print_json({"path": str(path)})
    else:
        console().print(f"{path} is written. Every setting is explained in it.")
        console().print("`perdure up` runs it, `perdure config` shows what is in force.")


@app.command()
def config(home: Home = None, as_json: AsJson = False) -> None:
    """Show every setting in force, and where its value came from. Secrets are masked."""
    from gateway.cli.tables import columns, print_table
    from gateway.cli.words import one_line
    from perdure.config import effective, load_settings

    entries = effective(load_settings(home))
    if as_json:
        print_json({"settings": [entry.model_dump() for entry in entries]})
        return
    table = columns("setting", "value", "from")
    for entry in entries:
        value = entry.value
        if isinstance(value, list):
            value = json.dumps(value, ensure_ascii=False)
        shown = "–" if value is None else one_line(str(value), _VALUE_LENGTH)
        source = entry.source
        table.add_row(entry.key, shown, source, style="dim" if source == "default" else None)
    print_table(console(), table)


@app.command()
def doctor(
    home: Home = None,
    as_json: AsJson = False,
    context: Annotated[
        str | None,
        typer.Option(
            "--context", metavar="KEY", help="Check the summaries of this session instead."
        ),
    ] = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="With --context: mend what is wrong with them.")
    ] = False,
) -> None:
    """Check this machine, the settings, the store, Temporal and the models, calling no model.

    Exit code 1 when something must be mended.
    """
    if context is not None:
        from gateway.cli.context_checks import check_context

        if not check_context(home, context, repair=repair, as_json=as_json):
            raise typer.Exit(1)
        return
    if repair:
        raise typer.BadParameter("--repair goes with --context KEY.")
    checks = asyncio.run(_examine(home, show=not as_json))
    failed = sum(check.status == "fail" for check in checks)
    warned = sum(check.status == "warn" for check in checks)
    if as_json:
        told = [check.model_dump(mode="json") for check in checks]
        print_json({"ok": not failed, "checks": told})
    else:
        console().print(f"{len(checks)} checks, {failed} failed, {warned} to look at")
    if failed:
        raise typer.Exit(1)


async def _examine(home: Path | None, *, show: bool) -> list[Check]:
    from rich.text import Text

    from gateway.cli.checks import examine

    out = console()
    checks = []
    async for check in examine(home):
        checks.append(check)
        if show:
            mark, style = _MARKS[check.status]
            out.print(Text.assemble((mark, style), f" {check.name}: {check.message}"))
            if check.hint:
                out.print(f"  {check.hint}")
    return checks
