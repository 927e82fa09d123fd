"""`perdure demo`: it shows what it promises, leaves nothing behind, and a leak does not pass.

What one whole demo leaves is judged again, then once more with one thing wrong in its home: a line
that leaked, a result that came twice, an entry of the trail that was touched.
`test_demo_checks.py` has the other checks.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sqlite3
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.demo.cast import AGENTS, ARCHIVE, CLERK, LEAD, PRINTER, REPORT
from gateway.demo.evidence import Evidence, Sent, gather_stored
from gateway.demo.outflow_checks import approval, labels, trail
from gateway.demo.stage import SECRET, check_home, documents, workspace_of
from gateway.demo.story_checks import exchange, recall, report, results
from gateway.demo.verdict import Check
from perdure.config import load_settings
from perdure.domain.errors import Conflict, InvalidArgument, NotFound
from perdure.policy.hooks import Hook
from perdure.store import Store
from tests.support.processes import eventually, running_on

ROOT = Path(__file__).parent.parent


@asynccontextmanager
async def demo(folder: Path, *arguments: str) -> AsyncIterator[Process]:
    """`perdure demo` in `folder`, whose settings must not matter; nothing of it is left."""
    known = os.environ.get("PYTHONPATH", "")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "gateway.cli", "demo", *arguments),
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": f"{ROOT}{os.pathsep}{known}",
            "PERDURE_STORE_URL": "sqlite:////nowhere/perdure.db",
            "TMPDIR": str(folder),
        },
        stdout=PIPE,
        stderr=PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()
        await eventually(lambda: running_on(folder) == [])


@pytest.fixture(scope="module")
async def performed(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """What one whole demo reports, and the home it leaves."""
    folder = tmp_path_factory.mktemp("demo")
    home = folder / "home"
    async with demo(folder, "--json", "--home", str(home)) as process:
        out, err = await process.communicate()
    assert process.returncode == 0, (out, err)
    return json.loads(out), home


async def test_the_demo_holds_every_promise(performed: tuple[dict[str, Any], Path]) -> None:
    told, home = performed
    assert told["held"]
    assert told["home"] == str(home)
    assert told["problem"] is None
    assert told["left_out"] == []
    found = {check["name"]: check["figures"] for check in told["checks"]}
    assert found["messages"]["sent"] > 40
    assert found["messages"]["sent_again"] > 10
    assert found["model_calls"]["cut_by_a_kill"] >= 4
    assert found["tool_effects"]["unknown_outcome"] == 1
    assert found["tool_effects"]["safely_run_again"] == 1
    assert found["tool_effects"]["refused"] == 2
    assert found["labels"]["messages_in_public_channels"] == 1
    assert found["labels"]["refusals_in_the_trail"] > 0
    assert set(found["approval"].values()) == {1}
    assert found["audit"]["entries"] > 200
    assert (home / "perdure.db").exists()


async def test_the_demo_kills_what_is_at_work(performed: tuple[dict[str, Any], Path]) -> None:
    kills = [one["figures"] for one in performed[0]["checks"] if one["name"] == "recovery"]
    assert [kill["model_calls_in_flight"] for kill in kills] >= [3, 2]
    assert [kill["tool_calls_in_flight"] for kill in kills] == [2, 1]
    assert [kill["waiting_for_a_person"] for kill in kills] == [0, 1]


async def test_the_demo_shows_what_became_of_every_run(
    performed: tuple[dict[str, Any], Path],
) -> None:
    told, home = performed
    runs = [(run["document"], run["state"]) for run in told["runs"]]
    assert sorted(runs) == [
        ("delegation", "completed"),
        ("delegation", "killed"),
        ("failures", "completed"),
        ("security", "completed"),
        ("security", "killed"),
    ]
    happened = [what for run in told["runs"] for what in run["happened"]]
    assert any("not paid again" in what for what in happened)
    assert (workspace_of(home) / REPORT).read_text() == told["report"]
    assert "{{" not in told["report"]


@pytest.fixture
def home(performed: tuple[dict[str, Any], Path], tmp_path: Path) -> Path:
    """A copy of the home that the demo left, to be spoiled."""
    return shutil.copytree(performed[1], tmp_path / "home")


async def outflow(home: Path) -> Evidence:
    """What the home tells of the demo's sessions."""
    settings = load_settings(home, {})
    store = await Store.open(settings.store_url)
    try:
        sent = [Sent(session_key=key, message_id="", text="") for key in AGENTS]
        return await gather_stored(store, settings, sent, SECRET)
    finally:
        await store.close()


def outflow_checks(evidence: Evidence) -> dict[str, Check]:
    (asked,) = evidence.outflow.approvals
    judged = (labels, trail, results, report, exchange, recall)
    checks = [approval(evidence, asked), *(judge(evidence) for judge in judged)]
    return {check.name: check for check in checks}


async def test_what_the_demo_leaves_can_be_judged_again(home: Path) -> None:
    checks = outflow_checks(await outflow(home))
    assert all(check.held for check in checks.values()), checks


def statement(text: str) -> Callable[[Path], None]:
    """Spoils a home by a statement on its database."""

    def spoil(home: Path) -> None:
        with sqlite3.connect(home / "perdure.db") as database:
            assert database.execute(text).rowcount > 0
        database.close()

    return spoil


def leaked_line(home: Path) -> None:
    with (home / "out" / "billboard.jsonl").open("a") as file:
        file.write(json.dumps({"text": f"Psst: {SECRET.splitlines()[2]}"}) + "\n")


def second_copy(home: Path) -> None:
    path = home / "out" / "audit-office.jsonl"
    path.write_text(path.read_text() * 2)


def another_anchor(home: Path) -> None:
    (home / "audit" / "head").unlink()


def lost_report(home: Path) -> None:
    (workspace_of(home) / REPORT).write_text("All is well.")


def touched_results(home: Path) -> None:
    for path in (workspace_of(home) / "subagent-results").iterdir():
        path.write_text(path.read_text() + " Not so.")


_RESULT = f"session_key = '{LEAD}' AND id LIKE 'result_%'"
_DOUBLED = f"""UPDATE messages SET from_session =
(SELECT from_session FROM messages WHERE {_RESULT} LIMIT 1)
WHERE session_key = '{LEAD}' AND role = 'user' AND turn = 1"""
_LOST = f"DELETE FROM messages WHERE {_RESULT} AND text LIKE '%completed%'"
_ALLOWED = f"""UPDATE messages SET text = '{{"status": "replied"}}'
WHERE session_key = '{PRINTER}' AND tool_name = 'sessions_send'"""
_REWRITTEN = f"UPDATE messages SET text = 'I said so.' WHERE session_key = '{ARCHIVE}' AND seq = 1"
_TORN = f"DELETE FROM summaries WHERE session_key = '{ARCHIVE}' AND depth = 0 AND first_seq = 1"
_MISLABELLED = f"UPDATE messages SET label = 'PUBLIC' WHERE session_key = '{CLERK}'"
_OUTBOX = f"""UPDATE events SET payload = '{json.dumps({"text": SECRET})}' WHERE id = 9"""
_ANSWERED = f"""UPDATE messages SET label = 'RESTRICTED' WHERE session_key = '{CLERK}'
AND role = 'assistant'"""
_EDITED = "UPDATE audit SET decision = 'ALLOW' WHERE decision = 'BLOCK'"


@pytest.mark.parametrize(
    ("name", "spoil", "figure", "value"),
    [
        ("labels", leaked_line, "found_below_their_label", 1),
        ("labels", statement(_MISLABELLED), "found_below_their_label", 3),
        ("labels", statement(_OUTBOX), "found_below_their_label", 3),
        ("labels", statement(_ANSWERED), "deliveries_and_answers_below_their_label", 2),
        (
            "labels",
            statement("UPDATE deliveries SET label = 'INTERNAL' WHERE channel = 'billboard'"),
            "deliveries_and_answers_below_their_label",
            1,
        ),
        ("approval", second_copy, "times_in_the_channel", 2),
        ("approval", statement("UPDATE approvals SET digest = ''"), "calls_it_is_bound_to", 0),
        ("approval", statement("UPDATE tool_claims SET claims = 2"), "runs_of_the_call", 2),
        ("approval", statement("DELETE FROM deliveries"), "deliveries", 0),
        ("approval", statement("UPDATE approvals SET state = 'denied'"), "deliveries", 1),
        ("audit", statement(_EDITED), "faults", 2),
        ("audit", statement("DELETE FROM audit WHERE seq = 50"), "faults", 1),
        ("audit", statement("DELETE FROM audit WHERE seq > 150"), "faults", 1),
        ("audit", another_anchor, "faults", 1),
        ("results", statement(_LOST), "lost", 3),
        ("results", statement(_DOUBLED), "doubled", 1),
        ("results", touched_results, "kept_word_for_word", 0),
        ("report", lost_report, "found_once", 0),
        ("exchange", statement(_ALLOWED), "waits_that_closed_a_ring", 0),
        ("recall", statement(_REWRITTEN), "handed_back_exactly", 0),
        ("recall", statement(_TORN), "faults_of_the_summaries", 1),
    ],
)
async def test_what_was_spoiled_is_found(
    home: Path, name: str, spoil: Callable[[Path], None], figure: str, value: int
) -> None:
    spoil(home)
    found = outflow_checks(await outflow(home))[name]
    assert not found.held
    assert found.figures[figure] == value


@pytest.mark.parametrize("hook", [Hook.PRE_TOOL_CALL, Hook.PRE_OUTPUT])
async def test_an_act_that_nobody_decided_is_found(home: Path, hook: Hook) -> None:
    evidence = await outflow(home)
    decisions = tuple(one for one in evidence.outflow.decisions if one.hook != hook)
    spoiled = evidence.outflow.model_copy(update={"decisions": decisions})
    found = trail(evidence.model_copy(update={"outflow": spoiled}))
    assert not found.held
    assert found.figures["missing"]


async def test_ctrl_c_stops_the_demo_and_all_that_it_started(tmp_path: Path) -> None:
    async with demo(tmp_path) as process:
        assert process.stdout is not None
        told = ""
        while "SIGKILL for the worker" not in told:
            line = await asyncio.wait_for(process.stdout.readline(), 60)
            assert line, (told, (await process.communicate())[1])
            told += line.decode()
        process.send_signal(signal.SIGINT)
        out, err = await process.communicate()
        assert (process.returncode, err) == (130, b"")
    assert "rehearsal" in told
    assert "Traceback" not in out.decode()
    assert os.listdir(tmp_path) == []


async def test_the_demo_touches_no_home_that_is_in_use(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    async with demo(tmp_path, "--json", "--home", str(tmp_path)) as process:
        out, _ = await process.communicate()
    assert process.returncode == 4
    assert json.loads(out)["error"]["code"] == "conflict"
    assert os.listdir(tmp_path) == ["notes.txt"]
    with pytest.raises(Conflict):
        check_home(tmp_path)
    with pytest.raises(InvalidArgument):
        check_home(tmp_path / "notes.txt")
    assert check_home(tmp_path / "new") == tmp_path / "new"


def test_an_installation_without_the_documents_says_so(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"README\.md") as refused:
        documents(tmp_path)
    assert "make demo" in refused.value.hint
    found = documents()
    assert found[0].name == "README.md"
    assert {path.name for path in found} >= {"architecture.md", "failures.md", "words.md"}
