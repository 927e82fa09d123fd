"""Reading, writing and editing: exact, atomic, and nothing lost between two writers."""

from __future__ import annotations

import fcntl
import os
import tempfile
import threading
import time
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure.domain.errors import (
    Conflict,
    InvalidArgument,
    LimitExceeded,
    NotFound,
    PerdureError,
)
from perdure.tools import to_json_text
from perdure.workspace import Workspace

#: What the file tools write: text of whole characters without NUL.
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@pytest.fixture
def space(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "root", file_bytes=1_000_000)


@given(TEXT)
@example("a\r\nb\rc\n\n")
@example("\ufeffbom")
def test_what_was_written_is_read_back(content: str) -> None:
    with tempfile.TemporaryDirectory() as root:
        space = Workspace(Path(root))
        written = space.write("d/f", content)
        found = space.read("d/f")
    assert found.content == content
    assert not found.truncated
    assert written.bytes == len(content.encode())
    assert (
        found.total_lines
        == found.end_line
        == len(content.split("\n")) - content.endswith("\n") - (not content)
    )


@given(TEXT | st.text("ab\n\r\u20ac"), st.integers(1, 12), st.integers(0, 8))
def test_a_range_of_lines_is_exactly_those_lines(content: str, start: int, count: int) -> None:
    lines = [line + "\n" for line in content.split("\n")]
    lines[-1] = lines[-1][:-1]
    lines = lines if lines[-1] else lines[:-1]
    with tempfile.TemporaryDirectory() as root:
        space = Workspace(Path(root))
        space.write("f", content)
        if start > max(len(lines), 1):
            with pytest.raises(InvalidArgument, match=f"has {len(lines)} lines"):
                space.read("f", start, start + count)
            return
        found = space.read("f", start, start + count)
    assert found.content == "".join(lines[start - 1 : start + count])
    assert (found.start_line, found.total_lines) == (start, len(lines))
    assert found.end_line == min(start + count, len(lines))


@given(
    st.lists(st.text('a\n\t€😀"\\', max_size=3_000), max_size=6).map("\n".join),
    st.integers(1_000, 4_000),
)
def test_windows_follow_one_another_without_loss(content: str, result_bytes: int) -> None:
    with tempfile.TemporaryDirectory() as root:
        space = Workspace(Path(root), result_bytes=result_bytes)
        space.write("f", content)
        seen, line, column, more = "", 1, 1, True
        while more:
            found = space.read("f", line, None, column)
            assert len(to_json_text(found).encode()) <= result_bytes
            more = found.truncated
            text, _, note = found.content.rpartition("\n[line ")
            if more and note.endswith("]\n"):
                column = int(note.rpartition("=")[2][:-2])
                seen += text
            else:
                line, column = found.end_line + 1, 1
                seen += found.content
    assert seen == content


def test_a_file_of_many_lines_comes_in_windows(space: Workspace) -> None:
    space.write("f", "x\n" * 5_000)
    found = space.read("f", 100)
    assert (found.start_line, found.end_line, found.total_lines) == (100, 2_099, 5_000)
    assert found.truncated
    assert not space.read("f", 100, 200).truncated


def test_one_huge_line_can_be_read_to_its_end(space: Workspace) -> None:
    space.write("f", "€" * 100_000)
    first = space.read("f")
    assert first.truncated
    assert (first.end_line, first.total_lines) == (1, 1)
    assert "start_column=" in first.content
    assert space.read("f", start_column=99_999).content == "€€"
    with pytest.raises(InvalidArgument, match="100000 characters"):
        space.read("f", start_column=100_001)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [((0,), "count from 1"), ((3, 2), "before start_line"), ((4,), "has 3 lines")],
)
def test_a_range_that_makes_no_sense_is_refused(
    space: Workspace, arguments: tuple[int, ...], words: str
) -> None:
    space.write("f", "a\nb\nc\n")
    with pytest.raises(InvalidArgument, match=words):
        space.read("f", *arguments)


def test_an_empty_file_has_no_lines(space: Workspace) -> None:
    space.write("f", "")
    found = space.read("f")
    assert (found.content, found.start_line, found.end_line, found.total_lines) == ("", 1, 0, 0)


@pytest.mark.parametrize("data", [b"\x00\x01", b"caf\xe9", b"PK\x03\x04\x00"])
def test_a_binary_file_is_refused_with_its_size(space: Workspace, data: bytes) -> None:
    space.write("x", "")
    (space.root / "b").write_bytes(data)
    for action in (lambda: space.read("b"), lambda: space.edit("b", "a", "b")):
        with pytest.raises(InvalidArgument, match=f"binary file of {len(data)} bytes"):
            action()


def test_the_size_limit_is_named_when_it_stands_in_the_way(space: Workspace) -> None:
    space.write("ok", "x" * 1_000_000)
    with pytest.raises(LimitExceeded, match="1000001 bytes; the limit file_bytes is 1000000"):
        space.write("big", "x" * 1_000_001)
    (space.root / "grown").write_bytes(b"x" * 1_000_001)
    with pytest.raises(LimitExceeded, match="file_bytes"):
        space.read("grown")
    with pytest.raises(LimitExceeded, match="file_bytes"):
        space.edit("ok", "x" * 1_000_000, "x" * 1_000_001)
    assert [entry.name for entry in space.ls().entries] == ["grown", "ok"]


@pytest.mark.parametrize("content", ["a\0b", "\ud800"])
def test_content_that_is_no_text_is_refused(space: Workspace, content: str) -> None:
    with pytest.raises(InvalidArgument, match="position"):
        space.write("f", content)


def test_write_tells_new_from_replaced_and_keeps_the_mode(space: Workspace) -> None:
    assert space.write("run.sh", "one").created
    (space.root / "run.sh").chmod(0o750)
    again = space.write("run.sh", "two")
    assert (again.created, again.bytes) == (False, 3)
    assert (space.root / "run.sh").stat().st_mode & 0o777 == 0o750
    space.edit("run.sh", "two", "three")
    assert (space.root / "run.sh").stat().st_mode & 0o777 == 0o750


def test_a_reader_never_sees_half_a_write(space: Workspace) -> None:
    contents = {letter * 200_000 for letter in "ab"}
    space.write("f", "a" * 200_000)
    stop = threading.Event()

    def flip() -> None:
        while not stop.is_set():
            for content in contents:
                space.write("f", content)

    writer = threading.Thread(target=flip)
    writer.start()
    try:
        for _ in range(200):
            assert (space.root / "f").read_text() in contents
    finally:
        stop.set()
        writer.join()
    assert [entry.name for entry in space.ls().entries] == ["f"]


def test_a_failed_write_leaves_nothing_behind(space: Workspace) -> None:
    space.write("d/f", "x")
    (space.root / "f").mkdir()
    with pytest.raises(PerdureError):
        space.write("f", "x")
    with pytest.raises(PerdureError):
        space.write("d/f/g", "x")
    assert sorted(os.listdir(space.root)) == ["d", "f"]
    assert os.listdir(space.root / "d") == ["f"]


@given(TEXT, TEXT.filter(bool), TEXT, TEXT)
@example("a", "aa", "x", "a")
@example("\r\n", "x", "y\n", "\r\n")
def test_edit_replaces_the_only_occurrence_or_refuses(
    before: str, old: str, new: str, after: str
) -> None:
    content = before + old + after
    places = [at for at in range(len(content)) if content.startswith(old, at)]
    with tempfile.TemporaryDirectory() as root:
        space = Workspace(Path(root))
        space.write("f", content)
        if old == new:
            with pytest.raises(InvalidArgument, match="same text"):
                space.edit("f", old, new)
        elif "\r\n" in content:
            return
        elif len(places) > 1:
            with pytest.raises(Conflict, match="occurs"):
                space.edit("f", old, new)
        else:
            edited = space.edit("f", old, new)
            assert (space.root / "f").read_bytes().decode() == before + new + after
            assert edited.line == before.count("\n") + 1
            return
        assert (space.root / "f").read_bytes().decode() == content


def test_edit_says_how_often_the_text_occurs_and_what_to_do(space: Workspace) -> None:
    space.write("f", "x = 1\ny = 1\nx = 1\n")
    with pytest.raises(Conflict, match=r"occurs 2 times.*lines 1 and 3") as caught:
        space.edit("f", "x = 1", "x = 2")
    assert "until it is unique" in caught.value.hint
    with pytest.raises(NotFound, match="does not occur"):
        space.edit("f", "z", "x")
    with pytest.raises(NotFound):
        space.edit("missing", "z", "x")
    with pytest.raises(InvalidArgument, match="empty"):
        space.edit("f", "", "x")
    edited = space.edit("f", "y = 1\nx = 1", "y = 2\nx = 3")
    assert edited.model_dump() == {"path": "f", "replaced": 1, "line": 2, "bytes": 18}


def test_edit_keeps_crlf_line_ends(space: Workspace) -> None:
    space.write("f", "one\r\ntwo\r\nthree\r\n")
    space.edit("f", "one\ntwo", "1\n1.5\r\n2")
    assert space.read("f").content == "1\r\n1.5\r\n2\r\nthree\r\n"


def test_parallel_edits_of_one_file_lose_nothing(space: Workspace) -> None:
    space.write("f", "".join(f"<{n}>\n" for n in range(40)))
    threads = [
        threading.Thread(target=space.edit, args=("f", f"<{n}>", f"<{n} done>")) for n in range(40)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert space.read("f").content == "".join(f"<{n} done>\n" for n in range(40))


def test_a_locked_folder_is_waited_for(space: Workspace) -> None:
    space.write("f", "x")
    folder = os.open(space.root, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    writer = threading.Thread(target=space.write, args=("f", "y"))
    writer.start()
    time.sleep(0.05)
    assert space.read("f").content == "x"
    os.close(folder)
    writer.join()
    assert space.read("f").content == "y"
