"""Turns on a terminal that go on beside each other: none takes away what another one has shown."""

from __future__ import annotations

import io

from rich.console import Console

from gateway.cli.turn_view import TurnView
from gateway.live import LiveItem, TextDelta, ToolEnded, ToolStarted, TurnEnded, TurnStarted
from perdure.domain.labels import Label
from perdure.domain.messages import Usage
from perdure.domain.states import ToolStatus, TurnState
from perdure.store.transcript import TurnResult

ARGUMENTS = '{"session_key": "default:editor", "mode": "ping-pong"}'


def ended(turn: int, text: str) -> TurnEnded:
    """The end of a turn of the session default:lead."""
    result = TurnResult(
        message_id=f"msg_{turn}",
        session_key="default:lead",
        turn=turn,
        state=TurnState.COMPLETED,
        text=text,
        label=Label.PUBLIC,
        steps=1,
        tools=(),
        usage=Usage(),
    )
    return TurnEnded(cursor=0, turn=turn, result=result)


def shown(*items: LiveItem) -> list[str]:
    """The lines that are written for these items where there is no terminal."""
    out = io.StringIO()
    view = TurnView(Console(file=out, width=200))
    for item in items:
        view.show(item)
    view.end_line()
    return out.getvalue().splitlines()


def test_a_call_that_waits_is_told_with_its_arguments_after_a_turn_beside_it() -> None:
    lines = shown(
        TurnStarted(cursor=0, turn=1, message_id="msg_1"),
        ToolStarted(cursor=0, turn=1, step=1, call=0, tool="sessions_send", arguments=ARGUMENTS),
        TurnStarted(cursor=0, turn=2, message_id="msg_2"),
        ToolStarted(cursor=0, turn=2, step=1, call=0, tool="ls", arguments="{}"),
        ToolEnded(cursor=0, turn=2, step=1, call=0, tool="ls", status=ToolStatus.OK, seconds=0.01),
        TextDelta(cursor=0, turn=2, step=2, text="Aside."),
        ended(2, "Aside."),
        ToolEnded(
            cursor=0,
            turn=1,
            step=1,
            call=0,
            tool="sessions_send",
            status=ToolStatus.OK,
            seconds=1.5,
        ),
        TextDelta(cursor=0, turn=1, step=2, text="Settled."),
        ended(1, "Settled."),
    )
    call = "sessions_send session_key=default:editor mode=ping-pong"
    assert [line for line in lines if "sessions_send" in line] == [
        f"→ {call}",
        f"✓ {call} · 1.50 s",
    ]
    assert "✓ ls · 0.01 s" in lines
    # Both turns were watched, and say how long they took.
    figures = [line for line in lines if line.startswith("turn ")]
    assert [line.split(" · ")[0] for line in figures] == ["turn 2", "turn 1"]
    assert all(line.endswith(" s") for line in figures)
