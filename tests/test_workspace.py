"""A session's workspace: nothing outside it is touched, and what is inside is never torn."""

from __future__ import annotations

import fcntl
import os
import re
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure.domain.errors import (
    Conflict,
    Denied,
    InvalidArgument,
    LimitExceeded,
    NotFound,
    PerdureError,
)
from perdure.tools import BUILTIN, to_json_text
from perdure.workspace import EntryType, Workspace, keep
from perdure.workspace import search as search_module

SECRET = "the outside"

#: What the file tools write: text of whole characters without NUL.
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
ANY_TEXT = st.text(st.characters(exclude_categories=()))


@pytest.fixture
def space(tmp_path: Path) -> Workspace:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text(SECRET)
    return Workspace(tmp_path / "root", file_bytes=1_000_000)


@pytest.fixture(scope="module")
def trapped() -> Iterator[tuple[Workspace, Path]]:
    """A workspace full of links, beside a folder that must stay as it is."""
    with tempfile.TemporaryDirectory() as name:
        base = Path(name).resolve()
        (base / "outside").mkdir()
        (base / "outside" / "secret.txt").write_text(SECRET)
        root = base / "root"
        (root / "a" / "b").mkdir(parents=True)
        (root / "a" / "f").write_text("inside")
        for link, target in {
            "out": "../outside",
            "abs": str(base / "outside"),
            "file": "../outside/secret.txt",
            "up": "..",
            "loop": "loop2",
            "loop2": "loop",
            "in": "a/b",
            "a/back": "../a",
            "absin": str(root / "a"),
            "dangling": "../outside/new.txt",
            "escape": "a/b/../../../outside",
        }.items():
            (root / link).symlink_to(target)
        yield Workspace(root, file_bytes=10_000), base


# --- paths

# fmt: off
_PARTS = st.sampled_from([
    ".", "..", "a", "b", "f", "out", "abs", "file", "up", "loop", "in", "back", "absin",
    "dangling", "escape", "secret.txt", "new", "~", "C:", "\\", "..\\..", "%2e%2e", "．．", "\0",
    "",
])
# fmt: on
_PATHS = ANY_TEXT | st.lists(_PARTS, max_size=8).map("/".join)


@given(_PATHS)
@example("../outside/secret.txt")
@example("/etc/passwd")
@example("a/../../outside/secret.txt")
@example("in/../../../outside/x")
@example("a/" * 600)
@example("x" * 256)
def test_no_path_ever_leaves_the_workspace(trapped: tuple[Workspace, Path], path: str) -> None:
    space, base = trapped
    try:
        place = space.resolve(path)
    except PerdureError:
        place = space.root
    assert Path(os.path.realpath(place)).is_relative_to(space.root)
    actions: list[Callable[[], str]] = [
        lambda: space.read(path).content,
        lambda: space.write(path, "x").path,
        lambda: space.edit(path, SECRET, "stolen").path,
        lambda: space.ls(path).model_dump_json(),
        lambda: str(space.grep(SECRET, path).matches),
    ]
    for action in actions:
        try:
            assert SECRET not in action()
        except PerdureError as error:
            refusal = error.refusal
            assert str(base) not in refusal.message + refusal.hint or str(base) in path
    assert os.listdir(base / "outside") == ["secret.txt"]
    assert (base / "outside" / "secret.txt").read_text() == SECRET
    assert sorted(os.listdir(base)) == ["outside", "root"]


@pytest.mark.parametrize(
    ("path", "error", "words"),
    [
        ("/etc/passwd", Denied, "absolute"),
        ("../outside/secret.txt", Denied, "leaves the workspace"),
        ("a/../../root/x", Denied, "leaves the workspace"),
        ("out/secret.txt", Denied, "symbolic link|leaves the workspace"),
        ("abs/secret.txt", Denied, "symbolic link 'abs'"),
        ("file", Denied, "leaves the workspace"),
        ("dangling", Denied, "leaves the workspace"),
        ("loop/x", InvalidArgument, "loop"),
        ("a\0b", InvalidArgument, "NUL"),
        ("\ud800", InvalidArgument, "surrogate"),
        ("x" * 256, LimitExceeded, "255"),
        ("ab/" * 400, LimitExceeded, "1024"),
        ("a/f/x", InvalidArgument, "not a folder"),
    ],
)
def test_a_refused_path_says_what_and_why(
    trapped: tuple[Workspace, Path], path: str, error: type[PerdureError], words: str
) -> None:
    space, _ = trapped
    for action in (lambda: space.read(path), lambda: space.write(path, "x")):
        with pytest.raises(error, match=words):
            action()


def test_links_that_stay_inside_are_followed(trapped: tuple[Workspace, Path]) -> None:
    space, _ = trapped
    assert space.read("a/back/f").path == "a/f"
    assert space.read("absin/f").content == space.read("in/../f").content
    assert space.write("in/made", "x").path == "a/b/made"


def test_a_link_swapped_in_after_the_check_is_refused(space: Workspace) -> None:
    space.write("dir/secret.txt", "mine")
    stop = threading.Event()
    real, link = space.root / "dir", space.root / "link"
    link.symlink_to("../outside")

    def swap() -> None:
        while not stop.is_set():
            os.rename(real, space.root / "aside")
            os.rename(link, real)
            os.rename(real, link)
            os.rename(space.root / "aside", real)

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        for _ in range(2_000):
            try:
                assert space.read("dir/secret.txt").content == "mine"
            except PerdureError:
                continue
    finally:
        stop.set()
        swapper.join()


def test_special_files_are_refused_without_blocking(space: Workspace) -> None:
    space.write("x", "")
    os.mkfifo(space.root / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(space.root)
        try:
            server.bind("sock")
        finally:
            os.chdir(here)
    for name, kind in {"pipe": "a pipe", "sock": "a socket"}.items():
        for action in (
            lambda name=name: space.read(name),
            lambda name=name: space.write(name, "x"),
            lambda name=name: space.edit(name, "a", "b"),
        ):
            with pytest.raises(InvalidArgument, match=kind):
                action()
    assert space.grep("x").skipped_other == 2
    assert [entry.type for entry in space.ls().entries] == ["other", "other", "file"]


def test_a_folder_where_a_file_is_wanted_is_refused(space: Workspace) -> None:
    space.write("d/f", "x")
    for path in ("", ".", "d", "d/"):
        for action in (
            lambda path=path: space.read(path),
            lambda path=path: space.write(path, "x"),
            lambda path=path: space.edit(path, "x", "y"),
        ):
            with pytest.raises(InvalidArgument, match="folder"):
                action()


def test_an_untouched_workspace_is_empty_and_not_yet_made(space: Workspace) -> None:
    assert space.ls("").entries == ()
    assert space.grep("x").files == 0
    for action in (lambda: space.read("a"), lambda: space.ls("a"), lambda: space.grep("x", "a")):
        with pytest.raises(NotFound):
            action()
    assert not space.root.exists()


# --- one folder per session


@given(st.lists(st.text(min_size=1).map(lambda user: f"default:{user!a}"), unique=True))
@example(["default:Bob", "default:bob", "default:b.ob", "default:@2E", "default:x" + "y" * 400])
def test_two_keys_never_share_a_folder_even_where_case_is_folded(keys: list[str]) -> None:
    home = Path("/home")
    roots = [Workspace.for_session(home, key).root for key in keys]
    assert len({str(root).lower() for root in roots}) == len(keys)
    assert {root.parent for root in roots} <= {(home / "workspaces").resolve()}
    assert all(len(root.name) < 60 for root in roots)


def test_two_sessions_never_see_each_others_files(tmp_path: Path) -> None:
    bob = Workspace.for_session(tmp_path, "default:bob")
    amy = Workspace.for_session(tmp_path, "default:amy")
    bob.write("note.txt", SECRET)
    assert amy.ls().entries == ()
    assert amy.grep(SECRET).total == 0
    with pytest.raises(Denied):
        amy.read(f"../{bob.root.name}/note.txt")
    assert bob.root.name.startswith("default-bob-")
    assert bob.root.stat().st_mode & 0o077 == 0


# --- read and write


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


# --- edit


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


# --- ls


def test_ls_is_sorted_with_types_and_sizes(space: Workspace) -> None:
    space.write("b.txt", "12345")
    space.write("a/x", "")
    (space.root / "c").symlink_to("b.txt")
    assert [(entry.name, entry.type, entry.size) for entry in space.ls().entries] == [
        ("a", EntryType.FOLDER, None),
        ("b.txt", EntryType.FILE, 5),
        ("c", EntryType.LINK, None),
    ]
    listing = space.ls("b.txt")
    assert (listing.path, listing.total, listing.entries[0].size) == ("b.txt", 1, 5)
    assert space.ls("a/").path == "a"


def test_ls_of_a_large_folder_comes_in_pages(space: Workspace) -> None:
    space.write("d/0000", "")
    for number in range(1, 1_203):
        (space.root / "d" / f"{number:04}").touch()
    names: list[str] = []
    more = True
    while more:
        page = space.ls("d", len(names))
        assert page.total == 1_203
        names += [entry.name for entry in page.entries]
        more = page.truncated
    assert names == [f"{number:04}" for number in range(1_203)]
    with pytest.raises(InvalidArgument, match="1203 entries"):
        space.ls("d", 1_204)


def test_names_that_are_not_utf8_are_shown_all_the_same(space: Workspace) -> None:
    space.write("x", "find me")
    (space.root / os.fsdecode(b"bad\xff.txt")).write_text("find me")
    assert "bad\ufffd.txt" in to_json_text(space.ls())
    assert to_json_text(space.grep("find")).count("find me") == 2


# --- grep


def test_grep_finds_lines_in_the_order_of_paths(space: Workspace) -> None:
    space.write("b.txt", "no\r\nTODO: two\r\n")
    space.write("a/deep/x.py", "# TODO one\npass\n# TODO: three")
    found = space.grep(r"TODO:?\s\w+$")
    assert [(match.path, match.line, match.text) for match in found.matches] == [
        ("a/deep/x.py", 1, "# TODO one"),
        ("a/deep/x.py", 3, "# TODO: three"),
        ("b.txt", 2, "TODO: two"),
    ]
    assert (found.total, found.truncated, found.files) == (3, False, 2)
    assert space.grep("^pass$", "a").total == 1
    assert space.grep("two", "b.txt").matches[0].path == "b.txt"


@given(
    st.text("ab\n€", max_size=60),
    st.sampled_from(["a", "^b", "b$", "^$", "", "a*", "a|^", "[^a]", r"\s", "(?s)a.b", "€+$"]),
)
def test_grep_agrees_with_matching_line_by_line(content: str, pattern: str) -> None:
    lines = content.split("\n")
    lines = lines[:-1] if lines[-1] == "" else lines
    with tempfile.TemporaryDirectory() as root:
        space = Workspace(Path(root))
        space.write("f", content)
        found = space.grep(pattern) if pattern else space.grep("(?:)")
    expected = [(number, line) for number, line in enumerate(lines, 1) if re.search(pattern, line)]
    assert [(match.line, match.text) for match in found.matches] == expected


def test_a_catastrophic_pattern_is_no_catastrophe(space: Workspace) -> None:
    space.write("f", "a" * 900_000 + "!")
    assert space.grep("(a+)+$").total == 0
    assert space.grep("(a|aa)*b").total == 0


@pytest.mark.parametrize(
    "pattern", ["(?=a)", r"(a)\1", "(", "a)(b", "[", "a{2000}", "\\", "\ud800"]
)
def test_a_pattern_that_re2_refuses_is_explained(space: Workspace, pattern: str) -> None:
    with pytest.raises(InvalidArgument, match="RE2"):
        space.grep(pattern)


def test_a_search_stops_at_its_time_and_says_so(
    space: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    space.write("f", "x\n")
    monkeypatch.setattr(search_module, "SEARCH_SECONDS", -1.0)
    assert space.grep("x").truncated


def test_grep_caps_its_answer_and_counts_the_rest(space: Workspace) -> None:
    space.write("f", "match\n" * 5_000)
    found = space.grep("match")
    assert (len(found.matches), found.total, found.truncated) == (200, 5_000, True)


def test_grep_counts_what_it_skips(space: Workspace) -> None:
    space.write("text", "x")
    (space.root / "binary").write_bytes(b"x\0")
    (space.root / "big").write_bytes(b"x" * 1_000_001)
    (space.root / "link").symlink_to("../outside")
    found = space.grep("x|outside")
    assert [match.path for match in found.matches] == ["text"]
    assert (found.skipped_binary, found.skipped_oversize, found.skipped_other) == (1, 1, 0)
    with pytest.raises(LimitExceeded):
        space.grep("x", "big")


def test_grep_shows_a_long_line_around_its_match(space: Workspace) -> None:
    space.write("f", "€" * 200_000 + "needle" + "€" * 100_000 + "needle\nneedle\n")
    found = space.grep("needle")
    assert [match.line for match in found.matches] == [1, 2]
    assert "needle" in found.matches[0].text
    assert len(found.matches[0].text) <= search_module.LINE_CHARACTERS + 2


# --- long results


@given(TEXT, st.integers(1, 3_000), ANY_TEXT)
@example("€" * 5_000, 1_000, "call_1")
@example("x" * 2_100_000, 50_000, "../../etc/passwd")
def test_a_long_result_is_cut_within_the_limit_and_kept_whole(
    text: str, limit: int, name: str
) -> None:
    with tempfile.TemporaryDirectory() as root:
        space = Workspace(Path(root))
        kept = keep(space, name, text, limit)
        assert kept.bytes == len(text.encode())
        assert len(kept.text.encode()) <= limit
        if kept.bytes <= limit:
            assert (kept.text, kept.path) == (text, None)
            return
        assert kept.path is not None
        assert kept.path.startswith("tool-results/")
        assert (space.root / kept.path).read_bytes() == text.encode()
        if limit >= 1_000:
            head, note, tail = kept.text.partition("\n\n[… cut: ")
            assert text.startswith(head)
            assert text.endswith(tail.rpartition("]\n\n")[2])
            assert kept.path in note + tail
            assert str(kept.bytes) in note + tail


def test_keeping_again_is_the_same(space: Workspace) -> None:
    first = keep(space, "2-1-call_1.txt", "x" * 5_000, 1_000)
    assert keep(space, "2-1-call_1.txt", "x" * 5_000, 1_000) == first
    assert first.path == "tool-results/2-1-call_1.txt"
    assert space.ls("tool-results").total == 1


def test_names_that_only_look_alike_are_kept_apart(space: Workspace) -> None:
    paths = {keep(space, name, "x" * 5_000, 1_000).path for name in ("a/b", "a:b", "a-b", "..", "")}
    assert len(paths) == 5


def test_a_result_that_cannot_be_kept_is_cut_all_the_same(space: Workspace) -> None:
    space.write("tool-results", "in the way")
    kept = keep(space, "x", "y" * 5_000, 1_000)
    assert kept.path is None
    assert "could not be kept" in kept.text
    assert kept.text.endswith("yyy")


def test_a_result_larger_than_a_file_is_kept_as_far_as_it_goes(space: Workspace) -> None:
    kept = keep(space, "x", "y" * 1_500_000, 1_000)
    assert kept.path is not None
    assert "As much as a file holds" in kept.text
    assert (space.root / kept.path).stat().st_size == 1_000_000


def test_the_rest_of_a_cut_json_result_can_be_read_with_the_read_tool(space: Workspace) -> None:
    text = to_json_text({"rows": [{"n": n} for n in range(50_000)]})
    kept = keep(space, "x", text, 50_000)
    assert kept.path is not None
    window = space.read(kept.path)
    assert window.truncated
    assert keep(space, "y", to_json_text(window), 50_000).path is None
    assert space.read(kept.path, start_column=len(text)).content == "}"
    assert space.grep('"n":49999', kept.path).total == 1


# --- names bound to implementations


def test_every_file_tool_has_a_method_with_its_parameters(space: Workspace) -> None:
    space.write("f", "x")
    calls = {
        "read": '{"path": "f"}',
        "write": '{"path": "g", "content": "x"}',
        "edit": '{"path": "f", "old": "x", "new": "y"}',
        "ls": "{}",
        "grep": '{"pattern": "y"}',
    }
    assert calls.keys() == {name for name, spec in BUILTIN.items() if spec.group == "files"}
    for name, arguments in calls.items():
        parsed = BUILTIN[name].parse(arguments)
        assert to_json_text(getattr(space, name)(**parsed.model_dump())).startswith('{"path":')


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
