"""`perdure audit verify`, `show`, `export`: what was decided, and the proof that it is all there.

Invariant: reading only. Nothing here makes a key, moves an anchor or repairs a chain.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.options import AsJson, Home
from gateway.cli.output import console, note, print_json

if TYPE_CHECKING:
    from perdure.audit import AuditFiles, Record, Report
    from perdure.store import Database

app = typer.Typer()
_audit = typer.Typer(help="Show, export and verify the trail of decisions.", no_args_is_help=True)
app.add_typer(_audit, name="audit")

#: Of a reason or an argument a table shows this much; one entry, and `--json`, show it all.
_SHOWN = 60

After = Annotated[
    int | None,
    typer.Option("--after", metavar="SEQ", min=0, help="Only those behind this entry."),
]


class Format(StrEnum):
    """How entries are exported."""

    JSONL = "jsonl"


@_audit.command()
def verify(
    home: Home = None,
    as_json: AsJson = False,
    after: After = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            metavar="FILE",
            help="Verify an export of the whole trail instead of the table.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
) -> None:
    """Walk the chain of entries and name what was changed, moved, removed or cut off.

    --after takes everything up to an entry as it stands: for a break that is known. Exit code 1
    when the trail is not as it was written.
    """
    report = asyncio.run(_verify(home, after or 0, file))
    if as_json:
        print_json(report)
    else:
        _print_report(report)
    raise typer.Exit(0 if report.valid else 1)


@_audit.command()
def show(
    seq: Annotated[
        int | None, typer.Argument(metavar="[SEQ]", min=1, help="One entry.", show_default=False)
    ] = None,
    home: Home = None,
    as_json: AsJson = False,
    session: Annotated[
        str | None, typer.Option("--session", metavar="KEY", help="Only those of this session.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1_000, help="How many.")] = 20,
    after: After = None,
) -> None:
    """Show one entry, or a page of them: the newest, or with --after those behind an entry."""
    if seq is not None:
        record = asyncio.run(read_entry(home, seq))
        if as_json:
            print_json(record.exported())
        else:
            _print_entry(record)
        return
    # One more than is shown tells whether there are more.
    records = asyncio.run(_page(home, session, limit + 1, after))
    more = len(records) > limit
    records = records[-limit:] if after is None else records[:limit]
    if as_json:
        entries = [record.exported() for record in records]
        print_json({"entries": entries, "has_more": more})
    else:
        _print_page(records, more, session, after)


@_audit.command()
def export(
    home: Home = None,
    as_format: Annotated[Format, typer.Option("--format", help="One entry a line.")] = Format.JSONL,
    after: After = None,
    since: Annotated[
        datetime | None,
        typer.Option("--since", help="Only those since this local time.", show_default=False),
    ] = None,
) -> None:
    """Write the entries to stdout, oldest first, with all that `verify --file` needs."""
    asyncio.run(_export(home, after or 0, since))


async def _verify(home: Path | None, after: int, file: Path | None) -> Report:
    from perdure.audit import verify_export
    from perdure.store.audit import verify

    if file is not None:
        with file.open("rb") as lines:
            return verify_export(lines, _files(home), after)
    async with _opened(home) as database:
        return await verify(database, _files(home), after)


async def read_entry(home: Path | None, seq: int) -> Record:
    """One entry of the trail of a home.

    Raises:
        NotFound: when there is none of that number.
    """
    from perdure.store.audit import AuditLog

    async with _opened(home) as database:
        return await AuditLog(database).entry(seq)


async def _page(
    home: Path | None, session: str | None, limit: int, after: int | None
) -> Sequence[Record]:
    from perdure.store.audit import AuditLog

    async with _opened(home) as database:
        log = AuditLog(database)
        if after is None:
            return await log.newest(limit, session)
        return await log.page(after, limit, session)


async def _export(home: Path | None, after: int, since: datetime | None) -> None:
    from perdure.store.audit import AuditLog

    async with _opened(home) as database:
        log = AuditLog(database)
        while records := await log.page(after, since=since):
            for record in records:
                print_json(record.exported())
            after = records[-1].seq


def _files(home: Path | None) -> AuditFiles:
    from perdure.audit import AuditFiles
    from perdure.config import load_settings

    settings = load_settings(home)
    return AuditFiles.of(settings.home, settings.audit.anchor)


@asynccontextmanager
async def _opened(home: Path | None) -> AsyncIterator[Database]:
    from perdure.config import load_settings
    from perdure.domain.errors import NotFound
    from perdure.store import Database
    from perdure.store.dialect import local_file, parse_url

    settings = load_settings(home)
    # Opening makes the file; a home with a trail and no store has a trail that was cut off.
    file = local_file(parse_url(settings.store_url))
    if file is not None and not _has_been_used(file, _files(home)):
        raise NotFound(f"Nothing was ever decided on {settings.home}: there is no store.")
    database = await Database.open(settings.store_url)
    try:
        yield database
    finally:
        await database.close()


def _has_been_used(store: Path, files: AuditFiles) -> bool:
    return any(file.exists() for file in (store, *files))


def _print_report(report: Report) -> None:
    from gateway.cli.words import plural, printable

    out = console()
    if report.valid:
        out.print(f"✓ The trail is whole: {report.entries:,} entries.", style="green")
    for fault in report.faults:
        times = f" ({plural(fault.count, 'place')})" if fault.count > 1 else ""
        out.print(f"✗ {fault.kind}: {printable(fault.detail)}{times}", style="red")
    for remark in report.remarks:
        out.print(f"! {remark}", style="yellow")
    if not report.valid:
        anchored = "nothing" if report.anchored is None else f"entry {report.anchored}"
        out.print(
            f"Entries walked: {report.entries:,}. The last is {report.head}; the anchor vouches "
            f"for {anchored}.",
            style="dim",
        )


def _print_entry(record: Record) -> None:
    from gateway.cli.tables import fields, print_table
    from gateway.cli.words import printable

    table = fields()
    for name, value in record.columns().items():
        if value not in (None, ""):
            table.add_row(name.replace("_", " "), printable(str(value)))
    print_table(console(), table)


def _print_page(
    records: Sequence[Record], more: bool, session: str | None, after: int | None
) -> None:
    from gateway.cli.tables import columns, print_table
    from gateway.cli.words import one_line, printable

    out = console()
    if not records:
        out.print("There are no such entries.")
        return
    table = columns("seq", "at (UTC)", "hook", "session", "decision", "by", "label", "reason")
    for record in records:
        rise = record.label_before != record.label_after
        cells = (
            record.seq,
            str(record.at)[:19].replace("T", " "),
            record.hook,
            record.session_key,
            record.decision,
            record.decided_by,
            f"{record.label_before} → {record.label_after}" if rise else record.label_after,
            one_line(str(record.reason), _SHOWN),
        )
        table.add_row(*(printable(str(cell)) for cell in cells))
    print_table(out, table)
    if more:
        of = f" --session {session}" if session else ""
        behind, what = (0, "From the first") if after is None else (records[-1].seq, "More")
        note(f"{what}: perdure audit show{of} --after {behind}")
