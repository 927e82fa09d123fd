"""`perdure up` and `down`, as a person and a script use them, with the real worker."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.local import down as stop_stack
from gateway.local import find_stack
from gateway.local.home import lock_file
from gateway.local.readiness import accepts
from tests.support.processes import alive, eventually, running_on

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


async def begin(folder: Path, *arguments: str, environ: Mapping[str, str] = {}) -> Process:
    """`perdure ARGUMENTS` on `folder/home`, in a folder that is not the project's."""
    known = os.environ.get("PYTHONPATH", "")
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "gateway.cli", *arguments, "--home", str(folder / "home")),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{known}", **environ},
        stdout=PIPE,
        stderr=PIPE,
    )


async def perdure(folder: Path, *arguments: str, environ: Mapping[str, str] = {}) -> Ended:
    """Run a command to its end."""
    process = await begin(folder, *arguments, environ=environ)
    out, err = await process.communicate()
    assert process.returncode is not None
    return Ended(process.returncode, out.decode(), err.decode())


@asynccontextmanager
async def up(folder: Path, *arguments: str, **environ: str) -> AsyncIterator[Process]:
    """`perdure up`; whatever happens, it is down at the end."""
    process = await begin(folder, "up", *arguments, environ=environ)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()
        await eventually(lambda: running_on(folder) == [])


async def ready(process: Process) -> dict[str, Any]:
    """The line that `up --json` prints when it is ready."""
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), 60)
    assert line, (await process.communicate())[1].decode()
    found: dict[str, Any] = json.loads(line)
    return found


def pids(info: dict[str, Any]) -> list[int]:
    found = info["pids"]
    return [pid for pid in (found["temporal"], found["gateway"], *found["workers"]) if pid]


async def test_up_prints_one_line_when_ready_and_sigterm_stops_all_of_it(tmp_path: Path) -> None:
    # Neither a stranger's worker.py nor the settings of a cluster elsewhere get in the way.
    (tmp_path / "worker.py").write_text("raise SystemExit('not ours')")
    async with up(
        tmp_path, "--json", "--workers", "2", TEMPORAL_API_KEY="key", TEMPORAL_TLS="true"
    ) as process:
        info = await ready(process)
        assert list(info) == ["temporal", "ui", "gateway", "home", "pids"]
        assert list(info["pids"]) == ["temporal", "workers", "gateway"]
        assert len(info["pids"]["workers"]) == 2
        assert info["home"] == str(tmp_path / "home")
        assert len(pids(info)) == 4
        assert all(alive(pid) for pid in pids(info))
        assert await accepts("127.0.0.1", int(info["gateway"].rpartition(":")[2]))
        found = find_stack(tmp_path / "home")
        assert found is not None
        assert found.model_dump() == info

        process.terminate()
        out, err = await process.communicate()
        assert (process.returncode, out, err) == (0, b"", b"")
        assert running_on(tmp_path) == []
        assert find_stack(tmp_path / "home") is None
    assert oct((tmp_path / "home").stat().st_mode)[-3:] == "700"


async def test_up_tells_a_person_where_things_are_and_ctrl_c_stops_it(tmp_path: Path) -> None:
    async with up(tmp_path) as process:
        assert process.stdout is not None
        text = ""
        while "perdure down" not in text:
            line = await asyncio.wait_for(process.stdout.readline(), 60)
            assert line
            text += line.decode()
        found = find_stack(tmp_path / "home")
        assert found is not None
        assert found.ui is not None
        assert found.temporal in text
        assert found.ui in text
        process.send_signal(signal.SIGINT)
        await process.wait()
        assert process.returncode == 0


async def test_a_second_up_says_who_is_there_and_down_stops_the_first(tmp_path: Path) -> None:
    async with up(tmp_path, "--json") as process:
        info = await ready(process)
        second = await perdure(tmp_path, "up", "--json")
        assert second.code == 4
        error = json.loads(second.out)["error"]
        assert error["code"] == "conflict"
        assert f"process {process.pid}" in error["message"]
        assert info["temporal"] in error["message"]
        plain = await perdure(tmp_path, "up")
        assert (plain.code, plain.out) == (4, "")
        assert plain.err.startswith("error: Perdure is already up on ")

        # What runs can be stopped, however wrong the settings have become.
        (tmp_path / "home" / "perdure.toml").write_text("no such key")
        stopped = await perdure(tmp_path, "down", "--json")
        assert json.loads(stopped.out) == {
            "home": str(tmp_path / "home"),
            "was_running": True,
            "pid": process.pid,
            "killed": False,
        }
        assert stopped.code == 0
        assert running_on(tmp_path) == []
        assert await process.wait() == 0

        again = await perdure(tmp_path, "down")
        assert (again.code, again.out) == (0, f"Nothing runs on {tmp_path / 'home'}.\n")


async def test_a_killed_up_leaves_nothing_running_and_the_next_one_starts(tmp_path: Path) -> None:
    async with up(tmp_path, "--json") as process:
        info = await ready(process)
        process.kill()
        await process.wait()
        await eventually(lambda: not any(alive(pid) for pid in pids(info)))
        assert find_stack(tmp_path / "home") is None
    async with up(tmp_path, "--json") as process:
        assert not set(pids(await ready(process))) & set(pids(info))


async def test_up_can_be_stopped_while_it_starts(tmp_path: Path) -> None:
    async with up(tmp_path, "--json") as process:
        log = tmp_path / "home" / "logs" / "worker-1.log"
        await eventually(log.exists)
        process.terminate()
        out, _ = await process.communicate()
        assert (process.returncode, out) == (0, b"")
        assert running_on(tmp_path) == []


async def test_a_signal_twice_does_not_wait_for_the_graces(tmp_path: Path) -> None:
    async with up(tmp_path, "--json") as process:
        info = await ready(process)
        worker = info["pids"]["workers"][0]
        # It cannot hear a SIGTERM, and so would be waited for.
        os.kill(worker, signal.SIGSTOP)
        process.terminate()
        await asyncio.sleep(0.5)
        assert alive(worker)
        process.terminate()
        assert await process.wait() == 0
        assert not alive(worker)


async def test_down_kills_a_stack_that_does_not_stop(tmp_path: Path) -> None:
    async with up(tmp_path, "--json") as process:
        info = await ready(process)
        process.send_signal(signal.SIGSTOP)
        stopped = await stop_stack(tmp_path / "home", patience=0.5)
        assert stopped.killed
        assert stopped.pid == process.pid
        await eventually(lambda: not any(alive(pid) for pid in pids(info)))
        assert lock_file(tmp_path / "home").exists()


async def test_a_worker_that_dies_at_once_is_explained_on_the_terminal(tmp_path: Path) -> None:
    async with up(tmp_path, "--json") as process:
        info = await ready(process)
        assert process.stderr is not None
        store = tmp_path / "home" / "perdure.db"
        for path in (tmp_path / "home").glob("perdure.db*"):
            path.unlink()
        store.mkdir()
        os.kill(info["pids"]["workers"][0], signal.SIGKILL)
        lines = ""
        while "The end of " not in lines:
            line = await asyncio.wait_for(process.stderr.readline(), 60)
            assert line
            lines += line.decode()
        assert "worker-1 was killed by SIGKILL" in lines
        assert "worker-1.log" in lines


async def test_a_wrong_command_line_or_setting_is_told_without_a_traceback(tmp_path: Path) -> None:
    wrong = await perdure(tmp_path, "up", "--workers", "none", "--json")
    assert wrong.code == 2
    assert json.loads(wrong.out)["error"]["code"] == "invalid_argument"
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "perdure.toml").write_text("[gateway]\nprot = 1\n")
    misspelt = await perdure(tmp_path, "up")
    assert misspelt.code == 2
    assert misspelt.out == ""
    assert misspelt.err.startswith("error: ")
    assert "prot" in misspelt.err
    assert "Traceback" not in misspelt.err
