"""A supervised process comes back when it ends, says why, and never outlives its supervisor."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.local.children import Child, Command
from gateway.local.supervisor import Supervisor
from tests.support.processes import alive, eventually

SLEEPER = "import time; time.sleep(600)"
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"  # noqa: E501
PARENT = (
    "import subprocess, sys, time; "
    f"print(subprocess.Popen([sys.executable, '-c', {SLEEPER!r}]).pid, flush=True); "
    "time.sleep(600)"
)


def command(folder: Path, code: str, name: str = "it") -> Command:
    return Command(name, (sys.executable, "-c", code), folder / f"{name}.log", os.environ)


def no_change() -> None: ...


@asynccontextmanager
async def supervised(
    what: Command, tell: Callable[[str], None] = print, grace: float = 5
) -> AsyncIterator[Supervisor]:
    supervisor = Supervisor(what, grace=grace, tell=tell, changed=no_change)
    await supervisor.start()
    try:
        yield supervisor
    finally:
        await supervisor.stop()


async def test_a_killed_process_is_started_again(tmp_path: Path) -> None:
    seen: list[int | None] = []
    told: list[str] = []
    supervisor = Supervisor(
        command(tmp_path, SLEEPER),
        grace=5,
        tell=told.append,
        changed=lambda: seen.append(supervisor.pid),
    )
    await supervisor.start()
    try:
        first = supervisor.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await eventually(lambda: supervisor.pid not in (None, first))
        second = supervisor.pid
        assert second is not None
        await eventually(lambda: seen[-1] == second)
    finally:
        await supervisor.stop()
    assert seen == [first, None, second]
    assert told == ["it was killed by SIGKILL; it is started again in 0.2 s."]
    assert not alive(first)
    assert not alive(second)


async def test_one_that_dies_at_once_is_tried_ever_more_rarely_and_its_log_is_shown(
    tmp_path: Path,
) -> None:
    told: list[str] = []
    failing = command(tmp_path, "import sys; sys.exit('the disk is full')")
    async with supervised(failing, told.append):
        await eventually(lambda: len(told) >= 4)
    pauses = [line for line in told if "started again" in line]
    assert pauses[:3] == [
        f"it ended with exit code 1; it is started again in {pause} s." for pause in (0.2, 0.4, 0.8)
    ]
    assert "the disk is full" in told[3]
    assert str(failing.log) in told[3]


async def test_a_stop_between_two_lives_leaves_nothing_running(tmp_path: Path) -> None:
    told: list[str] = []
    async with supervised(command(tmp_path, "raise SystemExit(3)"), told.append) as supervisor:
        await eventually(lambda: told)
    assert supervisor.pid is None


async def test_a_process_that_ignores_sigterm_is_killed_after_its_grace(tmp_path: Path) -> None:
    stubborn = command(tmp_path, STUBBORN)
    async with supervised(stubborn, grace=0.2) as supervisor:
        await eventually(lambda: "deaf" in stubborn.log.read_text())
        pid = supervisor.pid
        assert pid is not None
    assert not alive(pid)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_what_a_process_had_started_ends_with_it(
    tmp_path: Path, number: signal.Signals
) -> None:
    parent = command(tmp_path, PARENT)
    child = await Child.start(parent)
    await eventually(lambda: parent.log.read_text().endswith("\n"))
    grandchild = int(parent.log.read_text())
    assert alive(grandchild)
    os.kill(child.pid, number)
    await child.wait()
    await eventually(lambda: not alive(grandchild))


async def test_its_log_holds_the_words_of_every_life_and_the_tail_of_the_last(
    tmp_path: Path,
) -> None:
    for word in ("one", "two"):
        child = await Child.start(command(tmp_path, f"print({word!r})"))
        await child.wait()
        assert child.tail() == word
    assert (tmp_path / "it.log").read_text() == "one\ntwo\n"


async def test_a_program_that_is_not_there_is_an_end_with_a_reason(tmp_path: Path) -> None:
    child = await Child.start(Command("it", ("/no/such/program",), tmp_path / "it.log", {}))
    await child.wait()
    assert not child.alive
    assert "/no/such/program" in child.tail()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's end")
async def test_children_die_with_a_supervisor_that_was_killed(tmp_path: Path) -> None:
    code = f"""
import asyncio, os
from pathlib import Path
from gateway.local.children import Child, Command

async def main():
    command = Command("it", ({sys.executable!r}, "-c", {SLEEPER!r}), Path({str(tmp_path)!r}, "log"), os.environ)
    print((await Child.start(command)).pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""  # noqa: E501
    supervisor = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE
    )
    assert supervisor.stdout is not None
    pid = int(await supervisor.stdout.readline())
    assert alive(pid)
    supervisor.kill()
    await supervisor.wait()
    await eventually(lambda: not alive(pid))
