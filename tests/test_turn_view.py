"""A turn on the screen: what happens beside an answer does not stand in the middle of it."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from gateway.cli.turn_view import TurnView
from gateway.live import (
    LiveItem,
    MessageJoined,
    Restart,
    RunChange,
    RunChanged,
    TextDelta,
    ToolEnded,
    ToolStarted,
    TurnStarted,
)
from perdure.domain.states import ToolStatus


def shown(*items: LiveItem) -> list[str]:
    """What is on a screen that is not a terminal, line by line."""
    file = StringIO()
    view = TurnView(Console(file=file, width=100, markup=False, highlight=False, soft_wrap=True))
    for item in items:
        view.show(item)
    return file.getvalue().splitlines()


def says(text: str) -> TextDelta:
    return TextDelta(cursor=0, turn=1, step=1, text=text)


def run(change: RunChange, **told: str) -> RunChanged:
    return RunChanged(cursor=0, turn=0, run_id="run_a", change=change, **told)


BEGUN = TurnStarted(cursor=0, turn=1, message_id="m")
CALL = ToolStarted(cursor=0, turn=1, step=1, call=0, tool="ls", arguments="{}")
DONE = ToolEnded(cursor=0, turn=1, step=1, call=0, tool="ls", status=ToolStatus.OK, seconds=None)


def test_news_of_a_run_wait_until_the_text_they_would_break_is_said() -> None:
    ended = run(RunChange.ENDED, reason="completed")
    lines = shown(BEGUN, says("one "), ended, says("sentence"), CALL, DONE)
    assert lines[:2] == ["one sentence", "⑂ run_a has ended: completed"]
    assert lines[2].startswith("→ ls")


def test_news_that_came_before_an_answer_began_anew_are_told_before_it() -> None:
    joined = MessageJoined(cursor=0, turn=1, step=1, message_id="m-2")
    lines = shown(BEGUN, says("void"), joined, Restart(cursor=0, turn=1, step=1), says("good"))
    assert lines[-2:] == ["message m-2 joins the turn", "good"]


def test_every_change_of_a_run_has_a_line_of_its_own() -> None:
    told = {
        RunChange.QUEUED: {},
        RunChange.STARTED: {},
        RunChange.STOPPING: {"reason": "killed"},
        RunChange.STEERED: {"successor": "run_b"},
        RunChange.ENDED: {"reason": "failed"},
        RunChange.KEPT: {"reason": "reset"},
    }
    lines = shown(*(run(change, **more) for change, more in told.items()))
    assert lines == [
        "⑂ run_a waits for a place",
        "⑂ run_a has begun",
        "⑂ run_a is stopping (killed)",
        "⑂ run_a is steered: run_b takes its place",
        "⑂ run_a has ended: failed",
        "⑂ the result of run_a is kept (reset): perdure result run_a",
    ]
