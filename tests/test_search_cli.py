"""Searching, listing and paging from the command line, with nothing running but the command."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.cli import run
from perdure.domain.labels import Label
from perdure.store import Store
from tests.support.conversations import Conversation, opened
from tests.support.terminal import Ran, environment

Cli = Callable[..., Ran]
LEVEL = '[gateway]\nlevel = "INTERNAL"\n'


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with two sessions of seven messages each, one of which is above the gateway."""
    home = tmp_path_factory.mktemp("search")
    (home / "perdure.toml").write_text(LEVEL)

    async def fill() -> None:
        async with opened(home) as store:
            talk = await Conversation.open(store, "default:talk")
            for number in range(3):
                await talk.say(f"a heron, number {number}", "noted")
            await talk.begin("a secret heron", label=Label.CONFIDENTIAL)
            other = await Conversation.open(store, "default:other~guild~1")
            for number in range(3):
                await other.say(f"a stork, number {number}", "the heron is no stork")
            await other.begin("deploy -staging to gateway/run.py")

    asyncio.run(fill())
    return home


@pytest.fixture
def cli(home: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    """`perdure` on that home, in this process: a command line is its own world otherwise."""

    def call(*arguments: str) -> Ran:
        code = run([arguments[0], "--home", str(home), *arguments[1:]])
        return Ran(code, *capsys.readouterr())

    return call


def document(shown: Ran) -> dict[str, Any]:
    """The one JSON document on stdout."""
    assert shown.code == 0, shown
    found: dict[str, Any] = json.loads(shown.out)
    return found


def test_search_shows_the_best_first_and_where_the_next_page_is(cli: Cli) -> None:
    shown = cli("search", "heron", "OR", "stork", "--limit", "2")
    assert shown.code == 0
    assert "1–2 of 9" in shown.out
    assert "More: perdure search heron OR stork --offset 2" in shown.out
    assert "default:other~guild~1 · " in shown.out
    rest = cli("search", "heron OR stork", "--offset", "2", "--scope", "user")
    assert "3–6 of 6" in rest.out
    assert "More" not in rest.out


def test_search_keeps_to_a_session_and_shows_nothing_above_the_level(cli: Cli) -> None:
    found = document(cli("search", "heron", "--session", "default:talk", "--json"))
    assert (found["total"], found["complete"], found["lane"]) == (3, True, "fts")
    assert {hit["label"] for hit in found["hits"]} == {"PUBLIC"}
    assert list(found["hits"][0]) == [
        *("session_key", "message_id", "seq", "role", "snippet", "score", "label", "at")
    ]
    assert document(cli("search", "secret", "--json"))["total"] == 0
    nothing = cli("search", "secret")
    assert nothing.out == "Nothing was found.\n"
    unknown = cli("search", "heron", "--session", "default:nobody")
    assert (unknown.code, unknown.out) != (0, "")
    assert "There is no session default:nobody." in unknown.err


def test_search_takes_what_a_person_types(cli: Cli) -> None:
    assert document(cli("search", "gateway/run.py", "--json"))["total"] == 1
    assert document(cli("search", '"unclosed', "--json"))["total"] == 0
    assert document(cli("search", "--json", "--", "-heron -stork"))["total"] == 4
    blank = cli("search", " ", "--json")
    assert json.loads(blank.out or blank.err)["error"]["code"] == "invalid_argument"


def test_sessions_are_filtered(cli: Cli) -> None:
    def keys(*options: str) -> list[str]:
        page = document(cli("sessions", *options, "--json"))
        assert page["total"] == len(page["sessions"])
        return [one["session_key"] for one in page["sessions"]]

    assert keys() == ["default:other~guild~1", "default:talk"]
    assert keys("--label", "CONFIDENTIAL") == ["default:talk"]
    assert keys("--kind", "group", "--agent", "main") == ["default:other~guild~1"]
    assert keys("--state", "closed") == []
    assert (cli("sessions", "--agent", "nobody")).out == "There are no such sessions.\n"


def test_history_is_paged_from_a_place_that_does_not_shift(cli: Cli) -> None:
    shown = cli("history", "default:talk", "--limit", "3", "--before", "7")
    assert "3 of 7 messages, before 7" in shown.out
    assert "Older: perdure history default:talk --before 4" in shown.out
    page = document(cli("history", "default:talk", "--before", "4", "--limit", "3", "--json"))
    assert [one["seq"] for one in page["messages"]] == [1, 2, 3]
    assert not page["has_more"]
    newest = document(cli("history", "default:talk", "--limit", "1", "--json"))
    assert newest["messages"][0]["text"] == "[withheld: this message is CONFIDENTIAL]"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with opened(tmp_path) as store:
        yield store


async def test_a_watched_list_follows_what_happens(tmp_path: Path, store: Store) -> None:
    await Conversation.open(store, "default:first")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway.cli", "sessions", "--watch", "--json"),
        env=environment(tmp_path, {}),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            before = json.loads(await process.stdout.readline())
            await Conversation.open(store, "default:second")
            after = json.loads(await process.stdout.readline())
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 130
    finally:
        if process.returncode is None:
            process.kill()
    assert [one["session_key"] for one in before["sessions"]] == ["default:first"]
    assert [one["session_key"] for one in after["sessions"]] == ["default:second", "default:first"]
