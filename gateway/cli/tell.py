"""`perdure tell`: one session says something to another.

Invariant: what a person does here is no more than the first session may do itself.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.errors import EXIT_CODES
from gateway.cli.options import AsJson, Home
from gateway.cli.output import console, note, print_json
from perdure.domain.errors import Code
from perdure.domain.exchanges import Answered, ExchangeResult, ExchangeStatus, Mode, Sent, Settled

app = typer.Typer()

From = Annotated[
    str, typer.Argument(metavar="FROM", help="The session that speaks.", show_default=False)
]
To = Annotated[
    str, typer.Argument(metavar="TO", help="The session that is told.", show_default=False)
]
Text = Annotated[str, typer.Argument(metavar="TEXT", help="What.", show_default=False)]
HowTo = Annotated[
    Mode,
    typer.Option(
        "--mode", help="Whether to wait for the answer, and to let them go on from there."
    ),
]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        min=0,
        help="For all of it; then a message that was not begun is taken back. Exit code 124.",
    ),
]
MaxTurns = Annotated[
    int,
    typer.Option(
        "--max-turns", metavar="N", min=0, max=5, help="Of a ping-pong, after the first answer."
    ),
]


@app.command()
def tell(
    sender: From,
    target: To,
    text: Text,
    home: Home = None,
    as_json: AsJson = False,
    mode: HowTo = Mode.FIRE_AND_FORGET,
    timeout: Timeout = 60.0,
    max_turns: MaxTurns = 3,
) -> None:
    """Let one session say something to another, as its tool sessions_send would.

    The message is FROM's: marked with its key, at its label, under the same rules. With --mode wait
    the answer is printed here, and FROM learns nothing of it. With --mode ping-pong this command
    carries the answers from one to the other, as messages of their own, until it ends.
    """
    result = asyncio.run(_tell(home, sender, target, text, mode, timeout, max_turns))
    if as_json:
        print_json(result)
    else:
        _show(result)
    status = ExchangeStatus.REPLIED if isinstance(result, Sent) else result.status
    if status is ExchangeStatus.FAILED:
        raise typer.Exit(1)
    if status is not ExchangeStatus.REPLIED:
        raise typer.Exit(EXIT_CODES[Code.TIMEOUT])


async def _tell(
    home: Path | None,
    sender: str,
    target: str,
    text: str,
    mode: Mode,
    timeout: float,
    max_turns: int,
) -> ExchangeResult:
    from gateway.client import SessionClient
    from perdure.config import load_settings

    async with SessionClient.connect(load_settings(home)) as client:
        return await client.tell(
            sender, target, text, mode=mode, timeout=timeout, max_turns=max_turns
        )


def _show(result: ExchangeResult) -> None:
    from gateway.cli.words import plural, printable

    clean = printable if sys.stdout.isatty() else str
    if isinstance(result, Settled):
        for line in result.transcript:
            console().print(f"{line.from_session}:", style="dim")
            print(clean(line.text), flush=True)
        turns = plural(result.turns_completed, "further turn")
        note(f"{turns}, ended by {result.ended_by}")
    elif isinstance(result, Answered):
        print(clean(result.response), flush=True)
    elif isinstance(result, Sent):
        console().print(f"{result.message_id} · sent")
    else:
        note(_WITHOUT_ANSWER[result.status])


_WITHOUT_ANSWER = {
    ExchangeStatus.WITHDRAWN: "It had not begun in time: the message was taken back.",
    ExchangeStatus.DELIVERED_NO_REPLY: "No answer in time; the message is delivered.",
}
