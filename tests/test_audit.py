"""The audit trail on a real database: serial over processes, through kills, against tampering."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection

from gateway.cli import run
from perdure.audit import GENESIS, Anchor, AnchorFile, AuditFiles, Report, read_key
from perdure.domain.errors import NotFound, Unavailable
from perdure.store import Database
from perdure.store.audit import AuditLog, AuditTrail, page, verify
from tests.support.audit_appender import decision

ROOT = Path(__file__).parent.parent


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = await Database.open(f"sqlite:///{tmp_path / 'perdure.db'}")
    yield opened
    await opened.close()


@pytest.fixture
def files(tmp_path: Path) -> AuditFiles:
    return AuditFiles.of(tmp_path)


async def grow(database: Database, files: AuditFiles, count: int = 10) -> AuditTrail:
    """Append `count` entries, one a transaction, as a process that starts now."""
    trail = await AuditTrail.open(database, files)
    for number in range(count):
        await database.write(trail.append, decision("me", number))
    return trail


@contextmanager
def table(home: Path) -> Iterator[sqlite3.Connection]:
    """The database under the hands of someone else."""
    connection = sqlite3.connect(home / "perdure.db")
    with connection:
        yield connection
    connection.close()


def anchor_of(files: AuditFiles) -> AnchorFile:
    key = read_key(files.key)
    assert key is not None
    return AnchorFile(files.anchor, key)


def kinds(report: Report) -> list[tuple[str, int]]:
    return [(str(fault.kind), fault.seq) for fault in report.faults]


# One writer


async def test_a_trail_that_was_never_used_is_valid(database: Database, files: AuditFiles) -> None:
    assert (await verify(database, files)).valid
    assert not files.key.exists()
    await AuditTrail.open(database, files)
    assert anchor_of(files).read() == Anchor(GENESIS)
    assert (await verify(database, files)).valid


async def test_entries_are_numbered_from_one_chained_and_anchored(
    database: Database, files: AuditFiles
) -> None:
    await grow(database, files, 3)
    records = await AuditLog(database).page()
    assert [record.seq for record in records] == [1, 2, 3]
    assert [record.previous for record in records] == ["0" * 64, records[0].hash, records[1].hash]
    assert json.loads(records[1].arguments) == {"path": "1.txt", "ratio": 0.5, "text": "Grüße"}
    assert anchor_of(files).read() == Anchor(records[-1].head)
    assert (await verify(database, files)).valid


async def test_an_entry_is_committed_with_the_change_it_allows_or_not_at_all(
    database: Database, files: AuditFiles
) -> None:
    trail = await grow(database, files, 2)

    def refused(connection: Connection) -> None:
        assert trail.append(connection, decision("me", 3)) == 3
        assert trail.append(connection, decision("me", 4)) == 4
        raise NotFound("There is no such thing.")

    with pytest.raises(NotFound):
        await database.write(refused)
    report = await verify(database, files)
    assert (report.valid, report.head) == (True, 2)
    assert "Entry 4 was about to be written" in report.remarks[0]
    assert await database.write(trail.append, decision("me", 5)) == 3
    report = await verify(database, files)
    assert (report.valid, report.head, report.remarks) == (True, 3, ())


async def test_what_cannot_be_anchored_is_not_committed(
    database: Database, files: AuditFiles
) -> None:
    trail = await grow(database, files, 2)
    files.anchor.unlink()
    files.anchor.mkdir()
    with pytest.raises(Unavailable, match=r"The audit anchor .* cannot be"):
        await database.write(trail.append, decision("me", 3))
    assert [record.seq for record in await AuditLog(database).page()] == [1, 2]


async def test_an_opening_that_was_interrupted_is_no_fault_and_can_be_done_again(
    database: Database, files: AuditFiles
) -> None:
    await AuditTrail.open(database, files)
    files.key.unlink()
    assert (await verify(database, files)).valid
    await grow(database, files, 2)
    assert (await verify(database, files)).valid


# Several processes


def start_appender(home: Path, name: str, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.audit_appender", str(home), name, str(count)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )


async def test_processes_that_append_at_once_make_one_chain(
    database: Database, files: AuditFiles, tmp_path: Path
) -> None:
    """Started on a home without a key, verified while they append."""
    appenders = [start_appender(tmp_path, f"p{n}", 150) for n in range(2)]
    while any(appender.poll() is None for appender in appenders):
        report = await verify(database, files)
        assert report.valid, report
        await asyncio.sleep(0.02)
    assert [appender.wait() for appender in appenders] == [0, 0]
    report = await verify(database, files)
    assert (report.valid, report.entries, report.remarks) == (True, 450, ())
    told = [int(line) for appender in appenders for line in appender.communicate()[0].split()[1:]]
    assert len(told) == len(set(told)) == 300


async def test_a_killed_appender_leaves_a_valid_chain_and_no_alarm(
    database: Database, files: AuditFiles, tmp_path: Path
) -> None:
    chance = random.Random(7)
    told = 0
    for _ in range(20):
        appender = start_appender(tmp_path, "p", 0)
        assert appender.stdout is not None
        assert await asyncio.to_thread(appender.stdout.readline) == "ready\n"
        await asyncio.sleep(chance.uniform(0.0, 0.04))
        appender.send_signal(signal.SIGKILL)
        lines = (await asyncio.to_thread(appender.communicate))[0].split()
        told = max([told, *map(int, lines)])
        report = await verify(database, files)
        assert report.valid, report
        # What was told to be committed is there.
        assert report.head >= told
    assert told > 0
    await grow(database, files, 1)
    report = await verify(database, files)
    assert (report.valid, report.remarks) == (True, ())


async def test_what_a_dead_process_left_pending_is_settled_by_the_next_start(
    database: Database, files: AuditFiles
) -> None:
    await grow(database, files, 5)
    records = await AuditLog(database).page()
    anchor_of(files).write(Anchor(records[3].head, records[4].head))
    report = await verify(database, files)
    assert report.valid
    assert "has not anchored it" in report.remarks[0]
    await AuditTrail.open(database, files)
    assert anchor_of(files).read() == Anchor(records[4].head)


# Tampering


@pytest.mark.parametrize(
    ("deed", "found"),
    [
        ("UPDATE audit SET decision = 'ALLOW', label_after = 'PUBLIC' WHERE seq = 4", "edited"),
        ("UPDATE audit SET at = NULL WHERE seq = 4", None),
        ("UPDATE audit SET at = x'ff' WHERE seq = 4", "edited"),
        ("UPDATE audit SET arguments = arguments || ' ' WHERE seq = 4", "edited"),
        ("UPDATE audit SET hash = previous WHERE seq = 4", "edited"),
        (
            "UPDATE audit SET previous = (SELECT hash FROM audit WHERE seq = 1) WHERE seq = 4",
            "relinked",
        ),
        ("DELETE FROM audit WHERE seq = 4", "removed"),
        ("DELETE FROM audit WHERE seq BETWEEN 4 AND 7", "removed"),
        ("DELETE FROM audit WHERE seq >= 4", "cut_tail"),
        (
            "UPDATE audit SET seq = -seq WHERE seq IN (4, 7);"
            "UPDATE audit SET seq = seq + 11 WHERE seq < 0",
            "swapped",
        ),
    ],
)
async def test_a_tampered_table_is_found_and_named(
    database: Database, files: AuditFiles, tmp_path: Path, deed: str, found: str | None
) -> None:
    await grow(database, files)
    with table(tmp_path) as connection:
        if found is None:
            with pytest.raises(sqlite3.IntegrityError):
                connection.executescript(deed)
            return
        connection.executescript(deed)
    assert kinds(await verify(database, files)) == [(found, 4)]
    # Going on hides nothing.
    await grow(database, files, 3)
    assert (found, 4) in [(kind, min(seq, 4)) for kind, seq in kinds(await verify(database, files))]


async def test_a_cut_tail_shows_also_when_the_chain_has_grown_again(
    database: Database, files: AuditFiles, tmp_path: Path
) -> None:
    trail = await grow(database, files)
    with table(tmp_path) as connection:
        connection.execute("DELETE FROM audit WHERE seq > 6")
    for number in range(20):
        await database.write(trail.append, decision("me", number))
    report = await verify(database, files)
    assert kinds(report) == [("cut_tail", 7)]
    assert report.faults[0].detail.startswith(
        "The chain ended at entry 6; the anchor vouched for 10."
    )
    # Known by then, the rest can be verified by itself.
    assert (await verify(database, files, after=7)).valid


async def test_evidence_of_a_cut_survives_a_crash_before_it_is_recorded(
    database: Database, files: AuditFiles, tmp_path: Path
) -> None:
    trail = await grow(database, files)
    with table(tmp_path) as connection:
        connection.execute("DELETE FROM audit WHERE seq > 6")

    def dies(connection: Connection) -> None:
        trail.append(connection, decision("me", 0))
        raise KeyboardInterrupt

    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            await database.write(dies)
        assert kinds(await verify(database, files)) == [("cut_tail", 7)]
    await database.write(trail.append, decision("me", 0))
    assert kinds(await verify(database, files)) == [("cut_tail", 7)]


async def test_an_earlier_copy_of_the_table_is_found(
    database: Database, files: AuditFiles, tmp_path: Path
) -> None:
    await grow(database, files)
    with table(tmp_path) as connection:
        connection.execute("CREATE TABLE earlier AS SELECT * FROM audit")
    await grow(database, files)
    with table(tmp_path) as connection:
        connection.execute("DELETE FROM audit")
        connection.execute("INSERT INTO audit SELECT * FROM earlier")
    assert kinds(await verify(database, files)) == [("cut_tail", 11)]
    await grow(database, files, 30)
    assert kinds(await verify(database, files)) == [("cut_tail", 11)]


@pytest.mark.parametrize("kind", ["anchor_missing", "anchor_damaged"])
async def test_a_lost_anchor_is_named_and_never_silently_made_anew(
    database: Database, files: AuditFiles, kind: str
) -> None:
    await grow(database, files)
    if kind == "anchor_missing":
        files.anchor.unlink()
    else:
        files.anchor.write_bytes(files.anchor.read_bytes()[:100])
    assert kinds(await verify(database, files)) == [(kind, 10)]
    await grow(database, files, 5)
    assert kinds(await verify(database, files)) == [(kind, 11)]
    assert (await verify(database, files, after=11)).valid


async def test_another_key_is_named_and_a_lost_one_is_not_replaced(
    database: Database, files: AuditFiles, tmp_path: Path
) -> None:
    await grow(database, files)
    key = files.key.read_bytes()
    files.key.write_bytes(b"x" * 32)
    assert kinds(await verify(database, files)) == [("wrong_key", 1)]
    files.key.unlink()
    assert kinds(await verify(database, files)) == [("key_missing", 0)]
    with pytest.raises(Unavailable, match="10 entries were written with it"):
        await AuditTrail.open(database, files)
    # The anchor remembers what the table was emptied of.
    with table(tmp_path) as connection:
        connection.execute("DELETE FROM audit")
    with pytest.raises(Unavailable, match="10 entries were written with it"):
        await AuditTrail.open(database, files)
    assert kinds(await verify(database, files)) == [("key_missing", 0)]
    files.key.write_bytes(key)
    assert kinds(await verify(database, files)) == [("cut_tail", 1)]


# The command line


async def perdure(*arguments: str) -> int:
    return await asyncio.to_thread(run, ["audit", *arguments])


async def test_verify_exits_with_1_when_the_trail_is_not_whole(
    database: Database, files: AuditFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = ("--home", str(tmp_path))
    await grow(database, files)
    assert await perdure("verify", *home) == 0
    assert "The trail is whole: 10 entries." in capsys.readouterr().out
    with table(tmp_path) as connection:
        connection.execute("DELETE FROM audit WHERE seq IN (3, 9, 10)")
    assert await perdure("verify", *home) == 1
    told = capsys.readouterr().out
    assert "✗ removed: Entry 3 is gone." in told
    assert "✗ cut_tail: The chain ends at entry 8; the anchor vouches for entry 10." in told
    assert await perdure("verify", "--json", *home) == 1
    report = json.loads(capsys.readouterr().out)
    assert not report["valid"]
    assert [(fault["kind"], fault["seq"]) for fault in report["faults"]] == [
        ("removed", 3),
        ("cut_tail", 9),
    ]


async def test_an_export_is_verified_without_the_table(
    database: Database, files: AuditFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = ("--home", str(tmp_path))
    await grow(database, files, 1_200)
    assert await perdure("export", "--format", "jsonl", *home) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["seq"] for line in lines] == list(range(1, 1_201))
    export = tmp_path / "trail.jsonl"
    export.write_text("\n".join(lines))
    (tmp_path / "perdure.db").rename(tmp_path / "elsewhere.db")
    assert await perdure("verify", "--file", str(export), *home) == 0
    export.write_text("\n".join(lines).replace('"1.txt"', '"2.txt"'))
    assert await perdure("verify", "--file", str(export), *home) == 1
    assert "edited: Entry 2 was changed." in capsys.readouterr().out


async def test_an_export_begins_where_it_is_told_to(
    database: Database, files: AuditFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = ("--home", str(tmp_path))
    await grow(database, files, 5)
    assert await perdure("export", "--after", "3", *home) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["seq"] for line in lines] == [4, 5]
    tomorrow = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() + 86_400))
    assert await perdure("export", "--since", tomorrow, *home) == 0
    assert await perdure("export", "--since", "2020-01-01", *home) == 0
    assert len(capsys.readouterr().out.splitlines()) == 5


async def test_entries_are_shown_one_or_by_pages(
    database: Database, files: AuditFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = ("--home", str(tmp_path))
    trail = await grow(database, files, 5)
    await database.write(trail.append, decision("other", 6))

    async def shown(*arguments: str) -> tuple[list[int], bool]:
        assert await perdure("show", "--json", *arguments, *home) == 0
        told = json.loads(capsys.readouterr().out)
        return [entry["seq"] for entry in told["entries"]], told["has_more"]

    assert await shown() == ([1, 2, 3, 4, 5, 6], False)
    assert await shown("--limit", "2") == ([5, 6], True)
    assert await shown("--limit", "2", "--after", "0") == ([1, 2], True)
    assert await shown("--limit", "2", "--after", "4") == ([5, 6], False)
    assert await shown("--session", "default:me", "--limit", "2") == ([4, 5], True)
    assert await perdure("show", "2", "--json", *home) == 0
    entry = json.loads(capsys.readouterr().out)
    assert (entry["decision"], entry["arguments"]["path"]) == ("ALLOW", "1.txt")
    assert await perdure("show", "7", *home) == 3
    assert "There is no audit entry 7." in capsys.readouterr().err
    assert await perdure("show", "2", *home) == 0
    assert "Nothing forbids it." in capsys.readouterr().out
    assert await perdure("show", "--limit", "2", "--after", "1", *home) == 0
    told = capsys.readouterr()
    assert "PUBLIC → INTERNAL" in told.out
    assert told.err == "More: perdure audit show --after 3\n"


async def test_a_home_where_nothing_was_decided_is_told_and_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "nowhere"
    assert await perdure("verify", "--home", str(home)) == 3
    assert "Nothing was ever decided" in capsys.readouterr().err
    assert not home.exists()


async def test_the_table_is_read_by_pages(database: Database, files: AuditFiles) -> None:
    await grow(database, files, 7)
    assert [r.seq for r in await database.read(page, 2, 3)] == [3, 4, 5]
    assert [r.seq for r in await AuditLog(database).newest(2)] == [6, 7]
