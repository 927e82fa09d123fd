"""A session's workspace: nothing outside it is read or changed, whatever the path."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure.domain.errors import (
    Denied,
    InvalidArgument,
    LimitExceeded,
    NotFound,
    PerdureError,
)
from perdure.tools import BUILTIN, to_json_text
from perdure.workspace import Workspace

SECRET = "the outside"

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
