"""Long tool results: cut within the limit, kept whole, and readable to their end."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure.tools import to_json_text
from perdure.workspace import Workspace, keep

#: What the file tools write: text of whole characters without NUL.
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
ANY_TEXT = st.text(st.characters(exclude_categories=()))


@pytest.fixture
def space(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "root", file_bytes=1_000_000)


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
