"""The command line, run as people run it: processes, pipes, exit codes."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.stack import ROOT, Stack, fresh_key, until
from tests.support.terminal import Ran, environment, on_terminal, perdure

Cli = Callable[..., Awaitable[Ran]]


@pytest.fixture
def cli(stack: Stack) -> Cli:
    """`perdure` on the running stack."""

    async def run(*arguments: str, stdin: str | bytes = "") -> Ran:
        return await perdure(*arguments, home=stack.home, environ=stack.environ, stdin=stdin)

    return run


@pytest.fixture
def alone(tmp_path: Path) -> Cli:
    """`perdure` on a fresh home where nothing runs."""

    async def run(*arguments: str, stdin: str | bytes = "", **environ: str) -> Ran:
        return await perdure(*arguments, home=tmp_path, environ=environ, stdin=stdin)

    return run


def document(ran: Ran, code: int = 0) -> dict[str, Any]:
    """The one JSON document on stdout."""
    assert ran.code == code, ran
    found: dict[str, Any] = json.loads(ran.out)
    return found


# Talking -------------------------------------------------------------------------------------


async def test_ask_prints_the_answer_and_nothing_else_on_stdout(cli: Cli) -> None:
    ran = await cli("ask", fresh_key("ask"), "/say it is 42")
    assert ran == Ran(0, "it is 42\n", "")


async def test_ask_json_prints_the_published_shape_and_no_more(cli: Cli) -> None:
    key = fresh_key("shape")
    text = '/ls {"path": "."}\n/no_such_tool\n---\n/say done'
    answer = document(await cli("ask", key, text, "--json", "--message-id", "order-1"))
    assert answer == {
        "message_id": "order-1",
        "session_key": key,
        "turn": 1,
        "text": "done",
        "label": "PUBLIC",
        "steps": 2,
        "tools": [{"name": "ls", "status": "ok"}, {"name": "no_such_tool", "status": "error"}],
        "usage": {
            "input_tokens": answer["usage"]["input_tokens"],
            "output_tokens": answer["usage"]["output_tokens"],
            "cost": 0.0,
        },
    }
    assert list(answer) == [
        *("message_id", "session_key", "turn", "text", "label", "steps", "tools", "usage")
    ]


@pytest.mark.parametrize("dash", [[], ["-"]])
async def test_a_message_can_come_from_stdin(cli: Cli, dash: list[str]) -> None:
    ran = await cli("ask", fresh_key("stdin"), *dash, stdin="/say from a pipe\n")
    assert ran.out == "from a pipe\n"


async def test_stdin_that_is_no_text_is_refused_by_its_byte(cli: Cli) -> None:
    ran = await cli("ask", fresh_key("bytes"), stdin=b"abc\xff")
    assert ran.code == 2
    assert "not UTF-8 at byte 3" in ran.err


async def test_a_turn_that_fails_is_printed_and_exits_1(cli: Cli) -> None:
    key = fresh_key("fails")
    ran = await cli("ask", key, "/fail auth 1")
    assert ran.code == 1
    assert "API key is not accepted" in ran.out
    assert ran.err.startswith("error: ")
    answer = document(await cli("ask", key, "/fail auth 1", "--json"), code=1)
    assert answer["error"]["code"] == "denied"
    assert (await cli("ask", key, "/say on we go")).out == "on we go\n"


async def test_a_timeout_says_delivered_and_the_same_id_waits_on_for_the_one_answer(
    cli: Cli,
) -> None:
    key = fresh_key("timeout")
    late = await cli("ask", key, "/sleep 3\n/say late", "--timeout", "0.2", "--message-id", "m-1")
    assert late.code == 124
    assert "it is delivered" in late.err
    assert "--message-id m-1" in late.err
    refused = await cli(
        *("ask", key, "/sleep 3\n/say late", "--timeout", "0", "--message-id", "m-1", "--json")
    )
    assert document(refused, code=124)["error"]["code"] == "timeout"
    answer = await cli("ask", key, "/sleep 3\n/say late", "--message-id", "m-1", "--json")
    assert (document(answer)["text"], document(answer)["turn"]) == ("late", 1)


async def test_send_returns_at_once_with_a_ticket_and_sends_once(cli: Cli) -> None:
    key = fresh_key("send")
    first = document(await cli("send", key, "/sleep 2\n/say a", "--message-id", "a", "--json"))
    assert first == {"message_id": "a", "session_key": key, "position": 0, "duplicate": False}
    again = document(await cli("send", key, "/sleep 2\n/say a", "--message-id", "a", "--json"))
    assert again["duplicate"] is True
    second = await cli("send", key, "/say b", "--message-id", "b")
    assert second.out.startswith("b · ")
    assert (await cli("ask", key, "/say b", "--message-id", "b")).out == "b\n"
    status = document(await cli("status", key, "--json"))
    assert status["turns"] == 2


async def test_a_label_above_the_agents_clearance_is_refused(cli: Cli) -> None:
    ran = await cli("send", fresh_key("label"), "x", "--label", "restricted", "--json")
    assert document(ran, code=4)["error"]["code"] == "denied"


@pytest.mark.parametrize(
    ("arguments", "code", "name"),
    [
        (("status", "default:nobody-at-all"), 3, "not_found"),
        (("history", "default:nobody-at-all"), 3, "not_found"),
        (("events", "default:nobody-at-all"), 3, "not_found"),
        (("reset", "default:nobody-at-all"), 3, "not_found"),
        (("close", "default:nobody-at-all"), 3, "not_found"),
        (("interrupt", "default:nobody-at-all"), 3, "not_found"),
        (("ask", "no key", "x"), 2, "invalid_argument"),
        (("ask", "default:x", "  "), 2, "invalid_argument"),
        (("ask", "default:x", "x", "--agent", "nobody"), 2, "invalid_argument"),
        (("ask", "default:x", "x", "--message-id", "a b"), 2, "invalid_argument"),
        (("history", "default:x", "--limit", "201"), 2, "invalid_argument"),
        (("sessions", "--kind", "crowd"), 2, "invalid_argument"),
    ],
)
async def test_a_refusal_is_told_without_a_traceback_by_its_exit_code(
    cli: Cli, arguments: tuple[str, ...], code: int, name: str
) -> None:
    ran = await cli(*arguments, "--json")
    assert document(ran, code)["error"]["code"] == name
    assert ran.err == ""


async def test_a_refusal_for_people_is_one_line_on_stderr(cli: Cli) -> None:
    ran = await cli("status", "default:nobody-at-all")
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.startswith("error: ")
    assert ran.err.count("\n") == 1


async def test_ctrl_c_while_waiting_exits_130_and_tells_how_to_wait_on(stack: Stack) -> None:
    key = fresh_key("ctrl-c")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway.cli", "ask", key, "/sleep 4\n/say kept"),
        env=environment(stack.home, stack.environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    await until(lambda: _running(stack, key))
    process.send_signal(signal.SIGINT)
    out, err = await process.communicate()
    assert (process.returncode, out) == (130, b"")
    message_id = err.decode().partition("--message-id ")[2].split()[0]
    assert (await stack.client.wait(key, message_id, timeout=60)).text == "kept"


async def _running(stack: Stack, key: str) -> bool:
    row = await stack.client.store.sessions.get(key)
    return row is not None and row.state == "running"


# Looking -------------------------------------------------------------------------------------


async def test_history_is_read_by_pages_and_says_where_the_next_one_is(cli: Cli) -> None:
    key = fresh_key("history")
    await cli("ask", key, '/ls {"path": "."}\n---\n/say one')
    await cli("ask", key, "/say two")
    newest = document(await cli("history", key, "--limit", "2", "--json"))
    assert [message["text"] for message in newest["messages"]] == ["/say two", "two"]
    assert (newest["total"], newest["has_more"]) == (6, True)
    assert set(newest["messages"][0]) == {
        *("id", "seq", "role", "text", "tool_calls", "from_session", "label", "at")
    }
    shown = await cli("history", key, "--limit", "2")
    assert "5–6 of 6 messages" in shown.out
    assert f"perdure history {key} --offset 2" in shown.out
    older = await cli("history", key, "--offset", "2")
    assert "→ ls path=." in older.out
    assert "result of ls" in older.out
    assert "--offset 6" not in older.out


async def test_what_a_session_says_cannot_send_the_terminal_an_escape(cli: Cli) -> None:
    key = fresh_key("escape")
    await cli("ask", key, "/say \x1b[2J\x1b]0;owned\x07red")
    assert "\x1b" not in (await cli("history", key)).out
    assert "\x1b[2J" in document(await cli("history", key, "--json"))["messages"][1]["text"]


async def test_sessions_are_listed_by_kind_and_by_pages(cli: Cli) -> None:
    keys = [f"{fresh_key('guild')}~guild~{number}" for number in range(2)]
    for key in keys:
        await cli("ask", key, "/say hi")
    page = document(await cli("sessions", "--kind", "group", "--limit", "1", "--json"))
    assert page["sessions"][0]["session_key"] == keys[1]
    assert page["total"] >= 2
    shown = await cli("sessions", "--kind", "group", "--limit", "1")
    assert keys[1] in shown.out
    assert "More: perdure sessions --offset 1" in shown.out
    next_page = document(await cli("sessions", "--kind", "group", "--offset", "1", "--json"))
    assert next_page["sessions"][0]["session_key"] == keys[0]
    nothing = document(await cli("sessions", "--since-minutes", "0", "--json"))
    assert nothing == {"sessions": [], "total": 0}


async def test_status_has_the_shape_of_session_status(cli: Cli) -> None:
    key = fresh_key("status")
    await cli("ask", key, "/say hi")
    status = document(await cli("status", key, "--json"))
    assert set(status) == {
        *("session_key", "agent", "model", "kind", "state", "label", "clearance", "channel"),
        *("user", "turns", "steps", "tokens", "cost", "started_at", "duration_ms", "children"),
        "pending",
    }
    shown = (await cli("status", key)).out
    assert key in shown
    assert "1 in 1 step" in shown


async def test_events_are_json_lines_that_go_on_from_a_cursor(cli: Cli) -> None:
    key = fresh_key("events")
    await cli("ask", key, "/say hi")
    lines = (await cli("events", key, "--json")).out.splitlines()
    events = [json.loads(line) for line in lines]
    assert [event["kind"] for event in events] == [
        *("session.opened", "turn.started", "step.started", "step.completed", "turn.completed")
    ]
    some = await cli("events", key, "--limit", "2", "--json")
    assert some.out.splitlines() == lines[:2]
    cursor = str(events[1]["id"])
    assert f"--after {cursor}" in some.err
    assert (await cli("events", key, "--after", cursor, "--json")).out.splitlines() == lines[2:]
    assert "turn.completed" in (await cli("events", key)).out


async def test_followed_events_arrive_while_they_happen(cli: Cli, stack: Stack) -> None:
    key = fresh_key("follow")
    first = await stack.client.ask(key, "/say one")
    cursor = await stack.client.store.outbox.newest_id()
    following = asyncio.create_task(
        cli("events", key, "--follow", "--after", str(cursor), "--limit", "4", "--json")
    )
    await asyncio.sleep(0)
    await stack.client.ask(key, "/say two")
    ran = await following
    assert ran.code == 0
    assert {json.loads(line)["turn"] for line in ran.out.splitlines()} == {first.turn + 1}


# Managing ------------------------------------------------------------------------------------


async def test_interrupt_stops_the_turn_and_the_session_goes_on(cli: Cli, stack: Stack) -> None:
    key = fresh_key("interrupt")
    ticket = await stack.client.send(key, "/sleep 60")
    await until(lambda: _running(stack, key))
    assert document(await cli("interrupt", key, "--json")) == {"session_key": key, "turn": 1}
    assert (await stack.client.wait(key, ticket.message_id, timeout=60)).state == "interrupted"
    assert (await cli("ask", key, "/say alive")).out == "alive\n"
    assert document(await cli("interrupt", key, "--json"))["turn"] is None


async def test_reset_and_close_do_what_they_say_and_keep_the_transcript(cli: Cli) -> None:
    key = fresh_key("reset")
    await cli("ask", key, "/say remember")
    assert document(await cli("reset", key, "--json")) == {"session_key": key, "dropped": 0}
    closed = document(await cli("close", key, "--json"))
    assert closed == {"session_key": key, "state": "closed"}
    assert document(await cli("status", key, "--json"))["state"] == "closed"
    assert document(await cli("history", key, "--json"))["total"] == 2
    assert (await cli("ask", key, "/say open again")).out == "open again\n"


@pytest.mark.parametrize("command", ["reset", "close"])
async def test_a_person_is_asked_before_a_session_is_taken_down(stack: Stack, command: str) -> None:
    key = fresh_key(command)
    await stack.client.ask(key, "/say hi")
    cursor = await stack.client.store.outbox.newest_id(key)
    async with on_terminal(command, key, home=stack.home, environ=stack.environ) as terminal:
        await terminal.sees("[y/N]")
        terminal.type("n\r")
        assert await terminal.ends() == 1
    assert await stack.client.store.outbox.newest_id(key) == cursor
    async with on_terminal(command, key, "--yes", home=stack.home, environ=stack.environ) as again:
        assert await again.ends() == 0
    assert await stack.client.store.outbox.newest_id(key) > cursor


# Settings ------------------------------------------------------------------------------------


async def test_init_writes_a_file_that_works_and_never_overwrites(
    alone: Cli, tmp_path: Path
) -> None:
    made = document(await alone("init", "--json"))
    path = tmp_path / "perdure.toml"
    assert made == {"path": str(path)}
    path.write_text(path.read_text() + "# mine\n")
    again = await alone("init")
    assert again.code == 4
    assert "exists already" in again.err
    assert path.read_text().endswith("# mine\n")
    assert (await alone("config")).code == 0


async def test_config_shows_values_with_their_source_and_no_secret(
    alone: Cli, tmp_path: Path
) -> None:
    (tmp_path / "perdure.toml").write_text('default_agent = "main"\n[agents.main]\n')
    environ = {
        "PERDURE_STORE_URL": "sqlite:////srv/perdure.db?secret=hunter2",
        "PERDURE_LIMITS_MAX_STEPS": "7",
    }
    ran = await alone("config", "--json", **environ)
    entries = {entry["key"]: entry for entry in document(ran)["settings"]}
    assert entries["limits.max_steps"] == {
        "key": "limits.max_steps",
        "value": 7,
        "source": "environment PERDURE_LIMITS_MAX_STEPS",
        "secret": False,
    }
    assert entries["default_agent"]["source"] == "perdure.toml:1"
    assert entries["store.url"]["secret"] is True
    shown = await alone("config", **environ)
    assert "environment PERDURE_LIMITS_MAX_STEPS" in shown.out
    assert "hunter2" not in ran.out + shown.out


async def test_settings_that_are_wrong_are_told_with_file_and_line(
    alone: Cli, tmp_path: Path
) -> None:
    (tmp_path / "perdure.toml").write_text("[limits]\nmax_stepps = 3\n")
    ran = await alone("ask", "default:x", "hi")
    assert ran.code == 2
    assert "perdure.toml, line 2" in ran.err


async def test_talking_where_nothing_runs_says_how_to_start_it(alone: Cli) -> None:
    ran = await alone("ask", "default:x", "hi")
    assert ran.code == 5
    assert "perdure up" in ran.err


async def test_doctor_works_where_nothing_runs(alone: Cli, tmp_path: Path) -> None:
    report = document(await alone("doctor", "--json"))
    found = {check["name"]: check["status"] for check in report["checks"]}
    assert report["ok"] is True
    assert found["temporal"] == "warn"
    assert {found[name] for name in ("python", "home", "settings", "store", "agent main")} == {"ok"}
    assert not any(tmp_path.iterdir())  # noqa: ASYNC240


async def test_doctor_finds_a_running_stack_well(cli: Cli) -> None:
    report = document(await cli("doctor", "--json"))
    found = {check["name"]: check["status"] for check in report["checks"]}
    expected = ["python", "home", "settings", "store", "temporal", "search attributes", "worker"]
    assert [found[name] for name in expected] == ["ok"] * len(expected)
    assert "✓ worker" in (await cli("doctor")).out


@pytest.mark.parametrize(
    ("config", "name", "told"),
    [
        ("[limits]\nmax_stepps = 3", "settings", "max_stepps"),
        ('[agents.main]\nmodel = "nobody:x"', "agent main", "nobody:x"),
        ('[temporal]\naddress = "127.0.0.1:1"', "temporal", "127.0.0.1:1"),
        ('[store]\nurl = "sqlite:///perdure.toml"', "store", "perdure.toml"),
    ],
)
async def test_doctor_names_what_must_be_mended_and_exits_1(
    alone: Cli, tmp_path: Path, config: str, name: str, told: str
) -> None:
    config = config.replace("///perdure.toml", f"///{tmp_path}/perdure.toml")
    (tmp_path / "perdure.toml").write_text(config)
    report = document(await alone("doctor", "--json"), code=1)
    failed = {check["name"]: check for check in report["checks"] if check["status"] == "fail"}
    assert list(failed) == [name]
    assert told in failed[name]["message"]
    assert failed[name]["hint"]


# All of them ---------------------------------------------------------------------------------


def test_every_command_takes_a_home_and_json() -> None:
    script = (
        "import json\n"
        "from typer.main import get_command\n"
        "from gateway.cli import app\n"
        "def walk(name, command):\n"
        "    inner = getattr(command, 'commands', None)\n"
        "    if inner is None:\n"
        "        return {name: [o for p in command.params for o in p.opts]}\n"
        "    found = [walk(f'{name} {key}', one) for key, one in inner.items()]\n"
        "    return {key: options for part in found for key, options in part.items()}\n"
        "print(json.dumps(walk('perdure', get_command(app))))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    commands: dict[str, list[str]] = json.loads(ran.stdout)
    expected = (
        *("up", "down", "worker", "gateway", "ask", "send", "chat", "sessions", "status"),
        *("history", "events", "reset", "close", "interrupt", "config", "init", "doctor"),
    )
    assert {f"perdure {name}" for name in expected} <= set(commands)
    # A key is made from nothing, and for a file that somebody names.
    homeless = {"perdure encryption new-key"}
    wanting = [
        name
        for name, options in commands.items()
        # What writes a file format of its choice has that instead.
        if ("--home" not in options and name not in homeless)
        or not {"--json", "--format"} & set(options)
    ]
    assert wanting == []


def test_help_loads_nothing_heavy() -> None:
    script = (
        "import sys, gateway.cli\n"
        "heavy = ('temporalio', 'pydantic_ai', 'alembic', 'sqlalchemy', 'prompt_toolkit')\n"
        "print([name for name in heavy if name in sys.modules])\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[]"
