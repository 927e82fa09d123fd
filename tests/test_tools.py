"""The tool catalogue: what a model writes is validated or refused, and nothing else happens."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel

from perdure.domain.errors import InvalidArgument
from perdure.domain.steps import Lane
from perdure.tools import (
    BUILTIN,
    Effect,
    ToolSpec,
    to_json_text,
)


class Unit(enum.Enum):
    C = "celsius"


class Place(BaseModel):
    title: str
    height: float = 0.0


@pytest.mark.parametrize("name", sorted(BUILTIN))
def test_a_schema_is_closed_and_free_of_titles(name: str) -> None:
    schema = BUILTIN[name].schema()
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    assert "title" not in json.dumps(schema)
    assert all(part["description"] for part in schema["properties"].values())


def test_a_schema_is_a_copy_that_may_be_changed() -> None:
    BUILTIN["read"].schema().clear()
    assert BUILTIN["read"].schema()["required"] == ["path"]


def test_the_traits_of_the_file_tools() -> None:
    effects = {name: spec.effect for name, spec in BUILTIN.items() if spec.group == "files"}
    assert effects == {
        "read": Effect.READ,
        "ls": Effect.READ,
        "grep": Effect.READ,
        "write": Effect.IDEMPOTENT,
        "edit": Effect.ONCE,
    }
    assert {BUILTIN[name].lane for name in effects} == {Lane.LOCAL}


def test_numbers_written_as_strings_are_taken() -> None:
    parsed = BUILTIN["read"].parse('{"path": "a", "start_line": "5", "end_line": 7.0}')
    assert parsed.model_dump() == {
        "path": "a",
        "start_line": 5,
        "end_line": 7,
        "start_column": 1,
    }


@pytest.mark.parametrize("text", ["", "  \n", "{}"])
def test_no_arguments_at_all_are_an_empty_object(text: str) -> None:
    assert BUILTIN["ls"].parse(text).model_dump() == {"path": ".", "offset": 0}


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("read", "{}", ["path is missing", "path (string, required)"]),
        ("read", '{"path": "a", "start_lin": 1}', ["no argument start_lin", "start_line?"]),
        ("read", '{"path": "a", "start_line": "one"}', ["start_line is 'one'", "integer"]),
        ("read", '{"path": "a", "start_line": 0}', ["start_line is 0", "greater than or equal"]),
        ("read", '{"path": 7}', ["path is 7", "string"]),
        ("edit", '{"path": "a", "old": "", "new": "x"}', ["old is ''", "at least 1"]),
        ("read", "[1]", ["[1]", "not a JSON object"]),
        ("read", "null", ["None", "not a JSON object"]),
        ("read", "path=a", ["not valid JSON"]),
        ("read", '{"path": NaN}', ["not valid JSON"]),
        ("read", '{"path": "a", "start_line": 1e999}', ["too large"]),
        ("read", '{"path": "\ud800"}', ["surrogate"]),
        ("read", '{"path": "\\ud800"}', ["not valid JSON"]),
        ("read", '{"path": ' + "[" * 100_000, ["not valid JSON", "recursion"]),
        ("read", '{"path": ' + "9" * 10_000 + "}", ["not valid JSON"]),
        ("read", '{"path": ' + "9" * 4_000 + "}", ["path is"]),
    ],
)
def test_a_refusal_names_the_argument_the_value_and_what_is_allowed(
    name: str, arguments: str, words: list[str]
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        BUILTIN[name].parse(arguments)
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert len(str(caught.value)) < 1_500


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
_NAMES = st.sampled_from(["path", "start_line", "end_line", "old", "new", "pattern", "x"])


@given(
    st.sampled_from(sorted(BUILTIN)),
    st.text(st.characters(exclude_categories=()))
    | _JSON.map(json.dumps)
    | st.dictionaries(_NAMES, _JSON).map(json.dumps),
)
@example("read", '{"path": "a", "start_line": Infinity}')
def test_parse_never_raises_anything_but_invalid_argument(name: str, arguments: str) -> None:
    try:
        parsed = BUILTIN[name].parse(arguments)
    except InvalidArgument as error:
        refusal = error.refusal
    else:
        assert isinstance(parsed, BUILTIN[name].parameters)
        return
    assert refusal.model_dump_json()


@pytest.mark.parametrize("name", ["", "a b", "1st", "x" * 65, "naïve"])
def test_a_tool_name_must_fit_every_provider(name: str) -> None:
    with pytest.raises(InvalidArgument):
        dataclasses.replace(BUILTIN["ls"], name=name)


@pytest.mark.parametrize("timeout", [0, -1, math.nan, math.inf])
def test_a_timeout_is_positive_and_finite(timeout: float) -> None:
    with pytest.raises(InvalidArgument):
        dataclasses.replace(BUILTIN["ls"], timeout=timeout)


@dataclasses.dataclass
class Point:
    x: int
    at: datetime.date


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        (None, "null"),
        (Place(title="t"), '{"title":"t","height":0.0}'),
        (Point(1, datetime.date(2026, 1, 2)), '{"x":1,"at":"2026-01-02"}'),
        ({"u": Unit.C, "p": Path("a/b"), "s": {1}}, '{"u":"celsius","p":"a/b","s":[1]}'),
        ([b"text"], '["text"]'),
        ([b"\xff\xfe"], '["__4="]'),
        ({"NaN": 1}, '{"NaN":1}'),
        ("half \ud800 and \0", "half ? and ␀"),
    ],
)
def test_a_result_becomes_text(value: object, text: str) -> None:
    assert to_json_text(value) == text


def _cycle() -> list[Any]:
    inner: list[Any] = []
    inner.append({"again": inner})
    return inner


def _deep() -> list[Any]:
    outer: list[Any] = []
    for _ in range(5_000):
        outer = [outer]
    return outer


class Hostile:
    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (math.nan, "NaN"),
        ({"a": [math.inf]}, "infinity"),
        (_cycle(), "contains itself"),
        (_deep(), "deep"),
        (object(), "object"),
        (Hostile(), "Hostile"),
        (["\ud800"], "surrogate"),
    ],
)
def test_a_result_without_a_json_form_is_one_refusal(value: object, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words) as caught:
        to_json_text(value)
    assert "The tool ran" in str(caught.value)


@given(_JSON.filter(lambda value: not isinstance(value, str)))
def test_a_result_is_valid_json_or_refused(value: object) -> None:
    try:
        text = to_json_text(value)
    except InvalidArgument:
        return
    assert json.loads(text, parse_constant=pytest.fail) == value


def test_importing_the_catalogue_touches_no_other_room() -> None:
    code = (
        "import sys, perdure.tools\n"
        "heavy = {'perdure.workspace', 'perdure.store', 'perdure.models', 'pydantic_ai', "
        "'sqlalchemy', 're2', 'temporalio'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_spec_is_immutable() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        BUILTIN["read"].name = "x"  # type: ignore[misc]
    assert isinstance(BUILTIN["read"], ToolSpec)
