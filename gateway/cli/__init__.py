"""The command line: `perdure COMMAND`, thin over `gateway.client` and `gateway.local`.

Invariant: with `--json` a command writes JSON to stdout and nothing else there; what goes wrong
on purpose is told without a traceback, and the exit code says of which kind it was.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from itertools import takewhile

import typer
from typer.main import get_command

from gateway.cli import (
    approvals,
    audit,
    context,
    demo,
    encryption,
    keys,
    listing,
    look,
    manage,
    mcp,
    memory,
    policy,
    schedules,
    search,
    settings,
    stack,
    subagents,
    talk,
    tell,
    tree,
)
from gateway.cli.errors import INTERRUPTED, refuse, usage_error
from perdure.domain.errors import PerdureError

app = typer.Typer(
    name="perdure",
    help="AI-agent sessions that last.",
    # The locals of a frame may hold secrets, and Python's own tracebacks are enough.
    pretty_exceptions_enable=False,
)
for part in (
    *(talk.app, tell.app, listing.app, look.app, search.app, manage.app, approvals.app),
    *(
        subagents.app,
        tree.app,
        context.app,
        policy.app,
        audit.app,
        settings.app,
        stack.app,
        demo.app,
    ),
    memory.app,
    encryption.app,
    keys.app,
    mcp.app,
    schedules.app,
):
    app.add_typer(part)


@app.callback(invoke_without_command=True)
def _help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def run(arguments: Sequence[str]) -> int:
    """Run one command line, without the program's name; its exit code."""
    # Asked of the words themselves: a line that cannot be parsed has an error to tell, too.
    as_json = "--json" in takewhile(lambda word: word != "--", arguments)
    try:
        code = get_command(app).main(
            args=list(arguments), prog_name="perdure", standalone_mode=False
        )
    except PerdureError as error:
        return refuse(error.refusal, as_json)
    except typer.TyperException as error:
        return refuse(usage_error(error).refusal, as_json)
    except typer.Abort:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has seen enough, as `head` does.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        return 0
    return code if isinstance(code, int) else 0


def main() -> None:
    """The entry point of `perdure`; does not return."""
    code = run(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # An ordinary exit may abort: the SDK's threads reach for the interpreter while it goes down.
    os._exit(code)
