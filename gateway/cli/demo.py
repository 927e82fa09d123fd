"""`perdure demo`: the demo as a person sees it, and as a script reads it.

Invariant: a temporary home is removed only when all promises were held; whatever failed can be
looked at.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli.options import AsJson
from gateway.cli.output import console, note, print_json
from perdure.domain.errors import InvalidArgument

if TYPE_CHECKING:
    from gateway.demo.performance import Report
    from perdure.config import Settings

app = typer.Typer()

#: The folder name by which a forgotten home is recognised.
_PREFIX = "perdure-demo-"


@app.command()
def demo(
    home: Annotated[
        Path | None,
        typer.Option(
            "--home",
            metavar="DIR",
            help="A new or empty folder to run on, kept afterwards; else a temporary one.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the temporary folder.")] = False,
) -> None:
    """Watch a conversation survive kill -9: about a minute, on a home of its own.

    An agent works through this project's documents while its worker and Temporal are killed; then
    one that knows a secret may not tell it until a person agrees. Then what was promised is
    checked, in the store, in Temporal's history and in the audit trail. It runs on the rehearsal
    model, without network, or on the model that PERDURE_MODEL names. Exit code 1 when a promise
    failed.
    """
    from gateway.demo.stage import check_home, documents, set_up

    documents()
    chosen = check_home(home) if home else Path(tempfile.mkdtemp(prefix=_PREFIX))
    keep = keep or home is not None
    try:
        report = asyncio.run(_perform(set_up(chosen), as_json))
    except BaseException as error:
        # Nothing failed when a person stopped it, or when it could not begin.
        _leave(chosen, keep or not isinstance(error, typer.Abort | InvalidArgument), as_json)
        raise
    kept = keep or not report.held
    if as_json:
        print_json(_document(report, chosen if kept else None))
    _leave(chosen, kept, as_json)
    if not report.held:
        raise typer.Exit(1)


def _leave(home: Path, kept: bool, as_json: bool) -> None:
    if not kept:
        shutil.rmtree(home, ignore_errors=True)
    elif not as_json:
        note(f"The home is kept. To look at it again: perdure up --home {home}")


async def _perform(settings: Settings, as_json: bool) -> Report:
    from gateway.cli.demo_view import DemoView, Silence
    from gateway.demo.performance import perform

    task = asyncio.current_task()
    assert task is not None, "asyncio.run made one"
    asked = False

    def stop() -> None:
        # Once: another cancellation would reach the stopping itself.
        nonlocal asked
        if not asked:
            asked = True
            task.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        if as_json:
            return await perform(settings, Silence())
        view = DemoView(console(), settings)
        report = await perform(settings, view)
        view.report(report)
        return report
    except asyncio.CancelledError:
        raise typer.Abort from None


def _document(report: Report, home: Path | None) -> dict[str, Any]:
    """What `demo --json` prints; `home` is null when it was removed."""
    document = report.model_dump(mode="json", exclude={"home"})
    return {"held": report.held, "home": None if home is None else str(home), **document}
