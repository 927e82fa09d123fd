"""A stack keeps everything of one home running, says where it is, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from temporalio.client import Client

from gateway.local import Stack, StackInfo, TemporalServer, down, find_stack, running_server
from gateway.local.home import HomeLock, Pids, holder, lock_file, stack_file, write_stack_file
from gateway.local.readiness import server_serves, until
from perdure.config import GatewaySettings, Settings, TemporalSettings
from perdure.domain.errors import Conflict, Unavailable
from tests.support.processes import alive, eventually, running_on

ECHO = (sys.executable, str(Path(__file__).parent / "support" / "echo_worker.py"))
SLEEPER = "import time; time.sleep(600)"


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    """A stack with two workers that can only echo."""
    async with Stack(Settings(home=tmp_path / "home"), workers=2, worker=ECHO) as running:
        yield running
    assert running_on(tmp_path) == []
    assert not stack_file(tmp_path / "home").exists()
    assert holder(tmp_path / "home") is None


async def echo(stack: Stack, word: str) -> str:
    client = await Client.connect(stack.info.temporal)
    answer: str = await client.execute_workflow("Echo", word, id=word, task_queue="perdure")
    return answer


def now(stack: Stack) -> Pids:
    """The processes as a stranger finds them."""
    info = find_stack(Path(stack.info.home))
    assert info is not None
    return info.pids


async def test_a_ready_stack_answers_and_can_be_found(stack: Stack) -> None:
    home = Path(stack.info.home)
    assert find_stack(home) == stack.info
    assert await echo(stack, "hello") == "hello"
    assert list(json.loads(stack_file(home).read_text())) == [
        *("temporal", "ui", "gateway", "home", "pids"),
    ]
    assert {path.name for path in (home / "logs").iterdir()} == {
        *("temporal.log", "worker-1.log", "worker-2.log"),
    }
    pids = stack.info.pids
    assert len({pids.temporal, *pids.workers}) == 3
    assert all(alive(pid) for pid in (pids.temporal, *pids.workers) if pid)


async def test_a_killed_worker_is_replaced_and_the_file_follows(stack: Stack) -> None:
    before = now(stack).workers
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    await eventually(lambda: len(set(now(stack).workers) - set(before)) == 2)
    assert await echo(stack, "again") == "again"


async def test_a_killed_server_comes_back_at_its_address_with_its_data(stack: Stack) -> None:
    assert await echo(stack, "before") == "before"
    address, pid = stack.info.temporal, stack.info.pids.temporal
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: now(stack).temporal not in (None, pid))
    assert stack.info.temporal == address

    await until(lambda: server_serves(address, "default"))
    client = await Client.connect(address)
    assert await client.get_workflow_handle("before").result() == "before"
    assert await echo(stack, "after") == "after"


async def test_a_second_stack_on_a_home_is_told_who_is_there(stack: Stack) -> None:
    second = Stack(Settings(home=Path(stack.info.home)), worker=ECHO)
    with pytest.raises(Conflict) as refused:
        await second.start()
    await second.stop()
    assert str(os.getpid()) in refused.value.message
    assert stack.info.temporal in refused.value.message
    assert "perdure down" in refused.value.hint
    assert find_stack(Path(stack.info.home)) == stack.info


async def test_a_worker_that_cannot_live_fails_the_start_with_its_last_words(
    tmp_path: Path,
) -> None:
    told: list[str] = []
    failing = (sys.executable, "-c", "raise SystemExit('no model is configured')", str(tmp_path))
    with pytest.raises(Unavailable, match="no model is configured") as refused:
        async with Stack(Settings(home=tmp_path), worker=failing, tell=told.append):
            pytest.fail("it is not ready")
    assert "worker-1.log" in refused.value.hint
    assert any("started again" in line for line in told)
    assert running_on(tmp_path) == []
    assert find_stack(tmp_path) is None


async def test_a_cluster_elsewhere_is_used_and_no_server_is_started(tmp_path: Path) -> None:
    async with running_server(tmp_path / "cluster") as server:
        settings = Settings(
            home=tmp_path / "home", temporal=TemporalSettings(address=server.address, queue="mine")
        )
        async with Stack(settings, worker=ECHO) as stack:
            assert stack.info.temporal == server.address
            assert stack.info.ui is None
            assert stack.info.pids.temporal is None
            client = await Client.connect(server.address)
            assert await client.execute_workflow("Echo", "x", id="x", task_queue="mine") == "x"
        assert not (tmp_path / "home" / "temporal.db").exists()
        assert server.child is not None
        assert server.child.alive


async def test_a_cluster_that_does_not_answer_is_named(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, temporal=TemporalSettings(address="127.0.0.1:1"))
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1"):
        async with Stack(settings, worker=ECHO):
            pytest.fail("there is no cluster")


async def test_a_taken_port_leaves_the_home_free_for_another_try(tmp_path: Path) -> None:
    async with running_server(tmp_path / "other") as other:
        taken = int(other.address.rpartition(":")[2])
        with pytest.raises(Conflict, match=str(taken)):
            async with Stack(Settings(home=tmp_path / "home"), worker=ECHO, port=taken):
                pytest.fail("the port is taken")
    assert holder(tmp_path / "home") is None
    assert running_on(tmp_path / "home") == []


async def test_a_gateway_port_that_is_taken_is_a_conflict(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken = listener.getsockname()[1]
        settings = Settings(home=tmp_path, gateway=GatewaySettings(port=taken))
        with pytest.raises(Conflict, match=str(taken)):
            async with Stack(settings, worker=ECHO, gateway=True):
                pytest.fail("the port is taken")
    assert running_on(tmp_path) == []


# What a killed stack left, and stopping from outside.


@contextmanager
def sleeper(*arguments: str) -> Iterator[int]:
    """A process with these words in its command line."""
    process = subprocess.Popen([sys.executable, "-c", SLEEPER, *arguments])
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def relic(home: Path, *workers: int) -> None:
    home.mkdir(exist_ok=True)
    (home / "run").mkdir()
    lock_file(home).write_text("1\n")
    pids = Pids(temporal=None, workers=list(workers), gateway=None)
    write_stack_file(
        home, StackInfo(temporal="127.0.0.1:1", ui=None, gateway=None, home=str(home), pids=pids)
    )


def test_a_file_without_its_stack_is_no_stack(tmp_path: Path) -> None:
    assert find_stack(tmp_path) is None
    relic(tmp_path)
    assert find_stack(tmp_path) is None


async def test_what_a_killed_stack_left_running_is_ended_and_a_stranger_is_not(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    with sleeper("--home", str(home)) as left, sleeper("stranger") as stranger:
        relic(home, left, stranger)
        async with Stack(Settings(home=home), worker=ECHO) as stack:
            assert not alive(left)
            assert alive(stranger)
            assert find_stack(home) == stack.info


async def test_looking_at_a_home_never_stands_in_the_way_of_a_start(tmp_path: Path) -> None:
    relic(tmp_path)
    for _ in range(200):
        lock = HomeLock.take(tmp_path)
        assert holder(tmp_path) == os.getpid()
        lock.release()
        assert holder(tmp_path) is None


async def test_down_where_nothing_runs_says_so_and_clears_the_relic(tmp_path: Path) -> None:
    assert not (await down(tmp_path / "never")).was_running
    assert not (tmp_path / "never").exists()
    relic(tmp_path)
    assert not (await down(tmp_path)).was_running
    assert not stack_file(tmp_path).exists()


async def test_a_server_object_has_no_address_before_it_has_one(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="before it has started"):
        _ = TemporalServer(tmp_path).address
