"""A stub of a long text is within its limit, says where the whole lies, and what is in it."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from perdure.tools import to_json_text
from perdure.workspace import Workspace, keep
from perdure.workspace.stubs import STUB_BYTES, outline, stub_of

ANY_TEXT = st.text(st.characters(exclude_categories=()))
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=30,
)
CELLS = st.lists(st.lists(ANY_TEXT, min_size=2, max_size=4), min_size=1, max_size=8)
#: Texts that have the form of something, and texts that nearly have it.
FORMED = st.one_of(
    ANY_TEXT,
    JSON.map(json.dumps),
    JSON.map(lambda value: json.dumps([value] * 40)),
    st.lists(JSON, max_size=5).map(lambda values: "\n".join(map(json.dumps, values))),
    CELLS.map(lambda rows: "\n".join(",".join(row) for row in rows)),
    CELLS.map(lambda rows: "\n".join(f"def {row[0]}({row[1]}): pass" for row in rows)),
    CELLS.map(lambda rows: "\n".join(f"## {row[0]}\n{row[1]}" for row in rows)),
)
NAMES = st.one_of(ANY_TEXT, st.sampled_from(["a.py", "a.js", "a.md", "a.csv", "a.txt", "a.json"]))


@settings(deadline=None)
@given(FORMED, NAMES, st.integers(1, 3_000), st.booleans())
@example("\ud800" * 3_000, "\ud800.py", 1_000, False)
@example("-" * 300_000 + "1", "a.py", 1_000, False)
@example("(" * 100_000, "a.py", 1_000, False)
@example("[" * 100_000, "a.json", 1_000, False)
@example('{"n": 1' + "0" * 5_000 + "}", "a.json", 1_000, False)
@example("a,b\n" + '"' * 300_000, "a.csv", 1_000, False)
@example("a,b,c\n" + "1,2,3\n" * 100 + "x" * 200_000, "a.csv", 1_000, False)
@example("\0" * 5_000, "\0", 200, False)
def test_a_stub_of_any_text_is_within_its_limit(
    text: str, name: str, limit: int, repeated: bool
) -> None:
    stub = stub_of(text * (20 if repeated else 1), name, limit)
    assert len(stub.encode()) <= limit


@settings(deadline=None)
@given(FORMED, st.integers(1, 2_000))
def test_a_kept_result_of_any_form_is_within_its_limit_and_whole(text: str, limit: int) -> None:
    with tempfile.TemporaryDirectory() as root:
        space = Workspace(Path(root))
        clean = to_json_text(text)
        kept = keep(space, "1-1-0.txt", clean, limit)
        assert len(kept.text.encode()) <= limit
        if kept.path is not None:
            assert (space.root / kept.path).read_bytes() == clean.encode()


def test_json_is_told_by_keys_types_and_lengths() -> None:
    rows = [{"id": n, "name": f"row {n}", "tags": ["a"] * (n % 3)} for n in range(5_000)]
    rows[7]["note"] = None
    text = to_json_text({"rows": rows, "next page": None, "ok": True})
    stub = stub_of(text, "tool-results/1-1-0.txt")
    assert f"{len(text)} bytes in 1 line" in stub
    assert 'read with path="tool-results/1-1-0.txt"' in stub
    for line in (
        "  rows: array of 5000 elements",
        "    []: object",
        "      id: integer 0 to 999",
        "      name: string of 5 to 7 characters",
        "      tags: array of 0 to 2 elements",
        "        []: string of 1 character",
        "      note?: null",
        '  "next page": null',
        "  ok: true",
    ):
        assert line in stub.split("\n")
    assert '{"rows": [{"id": 0, "name": "row 0", "tags": []}' in stub


def test_an_object_with_many_keys_is_a_map() -> None:
    text = json.dumps({f"user-{n}": {"age": n} for n in range(2_000)})
    stub = stub_of(text, "users.json")
    assert "object of 2000 keys: user-0, user-1, user-2, …" in stub
    assert "  {}: object\n    age: integer 0 to 999\n" in stub


def test_a_long_text_in_json_is_shown_as_far_as_there_is_room() -> None:
    page = " ".join(f"word{n}" for n in range(20_000))
    stub = stub_of(json.dumps({"url": "https://example.org", "text": page}), "page.json")
    assert page[:3_000] in stub


def test_json_lines_are_told_as_one_shape() -> None:
    text = "".join(json.dumps({"at": n, "level": "info"}) + "\n" for n in range(3_000))
    stub = stub_of(text, "log.txt")
    assert "JSON lines" in stub
    assert "3000 lines of JSON; the shape of the first 1000" in stub
    assert "  at: integer 0 to 999" in stub


@pytest.mark.parametrize(("delimiter", "kind"), [(",", "CSV"), ("\t", "TSV")])
def test_a_table_is_told_by_columns_and_rows(delimiter: str, kind: str) -> None:
    rows = [["day", "price", "count", "place"]]
    rows += [[f"2024-01-{n % 28 + 1:02}", f"{n}.5", str(n), f"place {n % 3}"] for n in range(900)]
    text = "\n".join(delimiter.join(row) for row in rows)
    found = outline(text)
    assert found is not None
    assert found.kind == kind
    assert found.lines[:5] == (
        "900 rows below a header, 4 columns",
        "  day: date 2024-01-01 to 2024-01-28",
        "  price: number 0.5 to 899.5",
        "  count: integer 0 to 899",
        "  place: text of 7 to 7 characters, 3 different",
    )


def test_quoted_line_ends_in_a_table_are_no_rows() -> None:
    text = "id,note\n" + '1,"two\nlines, and a comma"\n' * 400
    found = outline(text)
    assert found is not None
    assert found.lines[0] == "400 rows below a header, 2 columns"


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"line {n:06} of a long result, {'x' * 40}\n" for n in range(400)),
        "Dear Bob, how are you?\nWell, I hope.\nYours, Ann\n" * 50,
        "1,2\n3,4\n5,6\n" * 50,
        "class of 2024\nfunction of time\ntype of thing\n" * 50,
        "no form at all " * 500,
        '{"broken": ' * 300,
    ],
)
def test_a_text_without_a_form_shows_its_head_and_tail(text: str) -> None:
    assert outline(text) is None
    stub = stub_of(text, "a.txt", 1_000)
    assert stub.startswith(text[:100])
    assert stub.endswith(text[-100:])


def test_python_is_told_by_its_definitions_and_their_lines() -> None:
    source = Path(__file__).read_text()
    own = test_python_is_told_by_its_definitions_and_their_lines
    found = outline(source)
    assert found is not None
    assert found.kind == "Python"
    assert f"{own.__code__.co_firstlineno}: def {own.__name__}()" in found.lines
    nested = outline("class A(B):\n    async def f(self, x: int = 1): ...\n", "a.py")
    assert nested is not None
    assert nested.lines == ("1: class A(B)", "2:   async def f(self, x: int=1)")


def test_python_that_does_not_parse_is_told_by_its_lines() -> None:
    found = outline("def f(:\n  pass\nclass A:\n  def g(self):\n", "a.py")
    assert found is None or found.kind != "Python"


def test_other_languages_are_told_by_the_lines_of_their_definitions() -> None:
    source = (
        "package main\n\ntype T struct {\n\tn int\n}\n\nfunc (t *T) Get() int {\n\treturn t.n\n}\n"
        "pub fn make<T>(x: T) -> u8 {\n"
        "public static void main(String[] args) {\n"
        "export async function load(x) {\n"
        "const f = async (a) => {\n"
        "create table t (id int)\n"
    )
    found = outline(source, "mixed.go")
    assert found is not None
    assert [line.partition(":")[0] for line in found.lines] == [
        "3",
        "7",
        "10",
        "11",
        "12",
        "13",
        "14",
    ]


def test_a_document_is_told_by_its_headings_but_not_those_in_code() -> None:
    text = "# One\n\ntext\n\n```sh\n# a comment\n```\n\n## Two\n\nmore\n\n## Three\n"
    found = outline(text, "a.md")
    assert found is not None
    assert found.lines == ("1: # One", "9: ## Two", "13: ## Three")


def test_an_outline_longer_than_its_room_says_how_much_is_left_out() -> None:
    source = "".join(f"def function_{n}(argument):\n    pass\n" for n in range(5_000))
    stub = stub_of(source, "many.py")
    assert len(stub.encode()) <= STUB_BYTES
    assert "more lines of outline" in stub.splitlines()[-1]


def test_the_whole_can_be_read_where_the_stub_says(tmp_path: Path) -> None:
    space = Workspace(tmp_path / "root")
    source = "".join(f"def function_{n}(argument):\n    return {n}\n" for n in range(5_000))
    kept = keep(space, "3-1-0.txt", source, 50_000)
    assert kept.path == "tool-results/3-1-0.txt"
    assert "201: def function_100(argument)" in kept.text
    assert space.read(kept.path, 201, 202).content == (
        "def function_100(argument):\n    return 100\n"
    )


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "line", ["a b" + "(" * 390, "public " * 57, "a<" * 190, "function " + "a" * 380, " " * 399]
)
def test_no_line_makes_looking_into_a_text_slow(line: str) -> None:
    """With patterns that are not linear this takes many minutes."""
    assert outline(f"{line}\n" * 20_000, "a.js") is None
