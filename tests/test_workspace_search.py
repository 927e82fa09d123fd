"""Listing and searching: ordered, bounded, and never hanging."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.domain.errors import (
    InvalidArgument,
    LimitExceeded,
)
from perdure.tools import to_json_text
from perdure.workspace import EntryType, Workspace
from perdure.workspace import search as search_module


@pytest.fixture
def space(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "root", file_bytes=1_000_000)


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
