"""Tools of a user, as an agent names them: `tests.support.user_tools:FUNCTION`.

A call that has an effect writes its idempotency key into `effects` of the workspace, one line a
time it ran. A call that waits does so until the file `gate` is there.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from perdure.tools import Effect, ToolContext, tool

#: 2.1 MB, more than Temporal takes in one payload; every line is told from every other.
HUGE = "".join(f"line {number:06} of a long result, {'x' * 40}\n" for number in range(30_000))


def effects(workspace: Path) -> list[str]:
    """The idempotency keys of all effects so far, oldest first."""
    file = workspace / "effects"
    return file.read_text().split() if file.exists() else []


def _take_effect(context: ToolContext) -> None:
    context.workspace.mkdir(parents=True, exist_ok=True)
    with (context.workspace / "effects").open("a") as file:
        file.write(f"{context.idempotency_key}\n")


async def _gate(context: ToolContext) -> None:
    while not (context.workspace / "gate").exists():  # noqa: ASYNC110 (the test is another process)
        await asyncio.sleep(0.02)


@tool(effect=Effect.ONCE)
async def pay(context: ToolContext) -> str:
    """Has an effect that must not come twice, then waits at the gate."""
    _take_effect(context)
    await _gate(context)
    return "paid"


async def retire(context: ToolContext) -> str:
    """Like `pay`, for a configuration that drops it."""
    return await pay(context)


@tool(effect=Effect.IDEMPOTENT)
async def put(context: ToolContext) -> str:
    """Has an effect that may come twice, then waits at the gate."""
    _take_effect(context)
    await _gate(context)
    return "put"


@tool(effect=Effect.READ)
async def look(context: ToolContext) -> str:
    """Counts as without effect, whatever it notes; waits at the gate."""
    _take_effect(context)
    await _gate(context)
    return "looked"


@tool(effect=Effect.READ)
async def late(context: ToolContext) -> str:
    """Waits at the gate, with no effect and no trace."""
    await _gate(context)
    return "late"


def early(context: ToolContext) -> str:
    """Opens the gate: what waits there finishes after this."""
    context.workspace.mkdir(parents=True, exist_ok=True)
    (context.workspace / "gate").touch()
    return "early"


@tool(timeout=0.3)
def too_slow() -> str:
    """Blocks its thread for longer than it may."""
    time.sleep(2)
    return "in the end"


@tool(effect=Effect.READ, timeout=0.3)
async def too_slow_to_read() -> str:
    """Waits for longer than it may."""
    await asyncio.Event().wait()
    return "never"


def seven_seconds() -> str:
    """Blocks its thread for longer than a heartbeat may be missing."""
    time.sleep(7)
    return "seven seconds"


async def seven_seconds_async() -> str:
    """Blocks the event loop it runs on for as long, as a careless function does."""
    time.sleep(7)  # noqa: ASYNC251
    return "seven seconds"


def huge() -> str:
    """Returns `HUGE`."""
    return HUGE


def odd(kind: str) -> Any:
    """Returns a value that is hard to write down."""
    cyclic: list[Any] = []
    cyclic.append(cyclic)
    return {
        "cyclic": cyclic,
        "nan": {"value": float("nan")},
        "object": object(),
        "bytes": b"\xff\x00",
        "surrogate": "half \ud83d",
        "nothing": None,
        "empty": "",
    }[kind]


def raises(kind: str) -> str:
    """Raises what its caller names."""
    errors: dict[str, BaseException] = {
        "value": ValueError("the value is wrong"),
        "timeout": TimeoutError("the printer did not answer"),
        "stop": StopIteration(),
        "exit": SystemExit(3),
        "keyboard": KeyboardInterrupt(),
        "cancelled": asyncio.CancelledError(),
        "long": ValueError("x" * 100_000),
        "surrogate": ValueError("half \ud83d"),
    }
    raise errors[kind]


async def raises_async(kind: str) -> str:
    """Raises what its caller names, from a coroutine."""
    return raises(kind)


def add(a: int, b: int = 1) -> int:
    """Add two numbers.

    Args:
        a: the first.
        b: the second.
    """
    return a + b


async def add_async(a: int, b: int = 1) -> int:
    """Add two numbers, without blocking."""
    await asyncio.sleep(0)
    return a + b


@tool(effect=Effect.IDEMPOTENT)
def whoami(context: ToolContext) -> dict[str, Any]:
    """What a tool may know about its call."""
    return {
        "session_key": context.session_key,
        "turn": context.turn,
        "step": context.step,
        "idempotency_key": context.idempotency_key,
    }
