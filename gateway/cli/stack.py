"""`perdure up`, `down`, `worker`, `gateway`: the processes.

Invariant: these commands only start, stop and tell; what they do is in `gateway.local`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.options import AsJson, Home
from gateway.cli.output import console, note, print_json

if TYPE_CHECKING:
    from gateway.local import Stack, StackInfo, Stopped

app = typer.Typer()


@app.command()
def up(
    home: Home = None,
    as_json: AsJson = False,
    workers: Annotated[int, typer.Option(min=0, help="How many worker processes.")] = 1,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65_535, help="Port of the Temporal server; else a free one."),
    ] = None,
    ui_port: Annotated[
        int | None,
        typer.Option(min=1, max=65_535, help="Port of the Temporal UI; else a free one."),
    ] = None,
) -> None:
    """Run everything on this machine until Ctrl-C: Temporal, workers, the gateway.

    With temporal.address set, that cluster is used and no server is started.
    """
    from gateway.local import Stack
    from perdure.config import load_settings

    stack = Stack(
        load_settings(home),
        workers=workers,
        gateway=True,
        port=port,
        ui_port=ui_port,
        tell=note,
    )
    asyncio.run(_run(stack, as_json))


@app.command()
def down(home: Home = None, as_json: AsJson = False) -> None:
    """Stop what `perdure up` runs on this home, wherever it was started."""
    from gateway.local import down as stop_stack
    from perdure.config import home_folder

    # What runs must be stoppable however wrong perdure.toml has become since.
    stopped = asyncio.run(stop_stack(home_folder(home)))
    if as_json:
        print_json(stopped)
    else:
        console().print(_told(stopped))


@app.command()
def worker(home: Home = None, as_json: AsJson = False) -> None:
    """Run one worker until Ctrl-C, on the configured cluster or on the stack of this home."""
    from gateway.local.commands import worker_argv
    from perdure.config import load_settings

    _become(worker_argv(load_settings(home).home))


@app.command()
def gateway(
    home: Home = None,
    as_json: AsJson = False,
    port: Annotated[
        int | None, typer.Option(min=1, max=65_535, help="Port to listen on; else the configured.")
    ] = None,
) -> None:
    """Run the HTTP gateway until Ctrl-C."""
    from gateway.local.commands import gateway_argv
    from perdure.config import load_settings

    _become(gateway_argv(load_settings(home).home, port))


async def _run(stack: Stack, as_json: bool) -> None:
    asked = 0
    to_stop = asyncio.Event()

    def on_signal() -> None:
        nonlocal asked
        asked += 1
        to_stop.set()
        # Whoever asks twice does not want to wait for the graces.
        if asked > 1:
            stack.kill()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    starting = asyncio.create_task(stack.start())
    stopping = asyncio.create_task(to_stop.wait())
    try:
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            await starting
            _tell_ready(stack.info, as_json)
            await stopping
    finally:
        starting.cancel()
        await asyncio.wait({starting})
        if not as_json and to_stop.is_set():
            note("Stopping. Workers hand over what is under way; Ctrl-C again ends the wait.")
        await stack.stop()


def _tell_ready(info: StackInfo, as_json: bool) -> None:
    if as_json:
        print_json(info)
        return
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    rows = (
        ("Temporal", info.temporal),
        ("UI", info.ui),
        ("Gateway", info.gateway),
        ("Workers", str(len(info.pids.workers))),
        ("Logs", str(Path(info.home) / "logs")),
    )
    for name, value in rows:
        if value is not None:
            table.add_row(f"  {name}", value)
    out = console()
    out.print(f"Perdure is up on {info.home}")
    out.print(table)
    out.print("Ctrl-C or `perdure down` stops it.")


def _told(stopped: Stopped) -> str:
    if not stopped.was_running:
        return f"Nothing runs on {stopped.home}."
    how = "killed, since it did not stop" if stopped.killed else "stopped"
    return f"Perdure on {stopped.home} (process {stopped.pid}) was {how}."


def _become(argv: tuple[str, ...]) -> None:
    from gateway.local.commands import own_environment

    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(argv[0], argv, own_environment())
