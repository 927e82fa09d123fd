"""The tool catalogue: what a model writes is validated or refused, and nothing else happens."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import enum
import functools
import importlib
import json
import math
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel, BeforeValidator, Field

from perdure.domain.errors import Conflict, InvalidArgument
from perdure.tools import (
    BUILTIN,
    Effect,
    Lane,
    ToolContext,
    ToolSpec,
    discover,
    from_function,
    groups,
    load,
    select,
    to_json_text,
    tool,
)

# --- functions that stand for a user's own module, loaded as `tests.test_tools:NAME`


ENDINGS: dict[str, BaseException] = {
    "iterator": StopIteration(),
    "exit": SystemExit(3),
    "keyboard": KeyboardInterrupt(),
    "generator": GeneratorExit(),
    "cancelled": asyncio.CancelledError(),
}


class Unit(enum.Enum):
    C = "celsius"
    F = "fahrenheit"


class Place(BaseModel):
    """Where."""

    title: str
    height: float = 0.0


@tool(effect=Effect.READ, timeout=5, group="weather")
async def forecast(place: Place, days: int = 3, unit: Unit = Unit.C) -> dict[str, Any]:
    """Tell the weather.

    Measured, not guessed.

    Args:
        place: Where to look.
        days: How many days, from today.
    """
    return {"place": place.title, "days": days, "unit": unit}


def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


def whoami(context: ToolContext, greeting: str) -> str:
    return f"{greeting} {context.session_key} {context.idempotency_key}"


def stops(kind: str) -> None:
    raise ENDINGS[kind]


async def stops_async(kind: str) -> None:
    raise ENDINGS[kind]


async def waits() -> None:
    await asyncio.Event().wait()


def awkward(schema: str, _hidden: int, model_config: str = "m", argument_0: int = 0) -> str:
    return f"{schema} {_hidden} {model_config} {argument_0}"


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def inner(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return inner


@wrapped
async def decorated(x: int) -> int:
    return x * 2


@tool(name="read")
def another_read(path: str) -> str:
    return path


def explode(value: object) -> object:
    raise KeyError("boom")


def untyped(x) -> None: ...  # type: ignore[no-untyped-def]
def variadic(*args: int) -> None: ...
def keywords(**options: int) -> None: ...
def positional(x: int, /) -> None: ...
def callback(x: Callable[[], int]) -> None: ...
def unknown_type(x: types.ModuleType) -> None: ...
def unresolved(x: NoSuchType) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def late_context(x: int, context: ToolContext) -> None: ...
def generator(x: int) -> Iterator[int]:
    yield x


HERE = "tests.test_tools"
CONTEXT = ToolContext("default:bob", 2, 3, Path("/w"), "key-1")


# --- arguments


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


# --- user tools


def test_a_schema_comes_from_types_defaults_and_docstring() -> None:
    spec = load(f"{HERE}:forecast").spec
    assert (spec.lane, spec.effect, spec.timeout, spec.group) == (
        Lane.ACTIVITY,
        Effect.READ,
        5,
        "weather",
    )
    assert spec.description == "Tell the weather.\n\nMeasured, not guessed."
    schema = spec.schema()
    assert schema["required"] == ["place"]
    assert schema["properties"]["place"]["description"] == "Where to look."
    assert schema["properties"]["days"] == {
        "type": "integer",
        "default": 3,
        "description": "How many days, from today.",
    }
    assert schema["$defs"]["Unit"] == {"enum": ["celsius", "fahrenheit"], "type": "string"}
    # A property may be called "title"; only the noise is gone.
    assert schema["$defs"]["Place"]["properties"]["title"] == {"type": "string"}


def test_without_a_decorator_a_tool_is_once_and_an_activity() -> None:
    spec = load(f"{HERE}:add").spec
    assert (spec.name, spec.group, spec.lane, spec.effect, spec.timeout) == (
        "add",
        "user",
        Lane.ACTIVITY,
        Effect.ONCE,
        None,
    )


async def test_async_sync_and_wrapped_functions_are_called_with_their_values() -> None:
    async def call(name: str, arguments: str) -> Any:
        user = load(f"{HERE}:{name}")
        return await user.call(user.spec.parse(arguments), CONTEXT)

    assert await call("forecast", '{"place": {"title": "Bern"}}') == {
        "place": "Bern",
        "days": 3,
        "unit": Unit.C,
    }
    assert await call("add", '{"a": "2"}') == 3
    assert await call("decorated", '{"x": 4}') == 8
    assert await call("whoami", '{"greeting": "hi"}') == "hi default:bob key-1"
    assert await call("awkward", '{"schema": "s", "_hidden": 2, "argument_0": 5}') == "s 2 m 5"


def test_arguments_dump_under_the_names_of_the_function() -> None:
    parsed = load(f"{HERE}:awkward").spec.parse('{"schema": "s", "_hidden": 2}')
    assert parsed.model_dump() == {
        "schema": "s",
        "_hidden": 2,
        "model_config": "m",
        "argument_0": 0,
    }


async def test_the_context_is_not_in_the_schema_and_is_required_by_the_call() -> None:
    user = load(f"{HERE}:whoami")
    assert list(user.spec.schema()["properties"]) == ["greeting"]
    assert user.spec.description == "whoami"
    with pytest.raises(InvalidArgument, match="ToolContext"):
        await user.call(user.spec.parse('{"greeting": "hi"}'))


@pytest.mark.parametrize("kind", sorted(ENDINGS))
@pytest.mark.parametrize("name", ["stops", "stops_async"])
async def test_a_tool_that_ends_its_thread_or_task_is_an_error_and_not_a_hang(
    name: str, kind: str
) -> None:
    user = load(f"{HERE}:{name}")
    with pytest.raises(RuntimeError, match=r"raised"):
        await user.call(user.spec.parse(json.dumps({"kind": kind})))


async def test_a_cancelled_call_is_cancelled() -> None:
    user = load(f"{HERE}:waits")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await user.call(user.spec.parse("{}"))


async def test_blocked_tools_do_not_starve_the_default_threads() -> None:
    gate = threading.Event()

    def blocks() -> None:
        gate.wait(60)

    user = from_function(blocks)
    calls = [asyncio.create_task(user.call(user.spec.parse("{}"))) for _ in range(40)]
    try:
        assert await asyncio.wait_for(asyncio.to_thread(lambda: 7), 30) == 7
    finally:
        gate.set()
        await asyncio.gather(*calls)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("untyped", ["parameter x without a type"]),
        ("variadic", ["*args"]),
        ("keywords", ["**options"]),
        ("positional", ["positional-only", "x"]),
        ("callback", ["parameter x", "no JSON form"]),
        ("unknown_type", ["parameter x", "no JSON form"]),
        ("unresolved", ["NoSuchType"]),
        ("late_context", ["first parameter"]),
        ("generator", ["generator"]),
        ("Place", ["not a function"]),
        ("HERE", ["not a function"]),
        ("nothing", ["nothing is not there"]),
    ],
)
def test_a_function_that_cannot_be_a_tool_is_refused_when_loaded(
    name: str, words: list[str]
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        load(f"{HERE}:{name}")
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize("reference", ["", "x", "no_such_module:f", "a:b:c", "os.path", "../x:y"])
def test_a_reference_that_leads_nowhere_is_invalid(reference: str) -> None:
    with pytest.raises(InvalidArgument):
        load(reference)


def test_a_module_that_raises_or_exits_on_import_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for name, code in {"pd_raises": "1 / 0", "pd_exits": "raise SystemExit(1)"}.items():
        (tmp_path / f"{name}.py").write_text(code)
        with pytest.raises(InvalidArgument, match=f"importing {name} raised"):
            load(f"{name}:f")


def test_field_constraints_of_an_annotation_reach_the_schema() -> None:
    def pick(count: Annotated[int, Field(ge=1, le=9)], colour: Literal["red", "blue"]) -> None: ...

    spec = from_function(pick).spec
    assert spec.schema()["properties"]["count"]["maximum"] == 9
    with pytest.raises(InvalidArgument, match="'red'"):
        spec.parse('{"count": 2, "colour": "green"}')


def test_a_validator_that_raises_anything_is_still_invalid_argument() -> None:
    def f(x: Annotated[int, BeforeValidator(explode)]) -> None: ...

    with pytest.raises(InvalidArgument, match="KeyError"):
        from_function(f).spec.parse('{"x": 1}')


# --- the catalogue


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str]], None]:
    """Announce entry points as an installed package would."""

    def install(entries: dict[str, str]) -> None:
        info = tmp_path / "demo_tools-1.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: demo-tools\nVersion: 1\n")
        lines = [f"{name} = {value}" for name, value in entries.items()]
        (info / "entry_points.txt").write_text("\n".join(["[perdure.tools]", *lines]))
        importlib.invalidate_caches()

    monkeypatch.syspath_prepend(tmp_path)
    return install


def test_groups_tools_and_references_resolve_and_repeat_harmlessly() -> None:
    assert groups()["files"] == ("read", "write", "edit", "ls", "grep")
    box = select(["files", "read", f"{HERE}:add", f"{HERE}:add"])
    assert list(box.specs) == ["read", "write", "edit", "ls", "grep", "add"]
    assert list(box.users) == ["add"]
    assert list(select(["ls"]).specs) == ["ls"]
    assert select([]).specs == {}


def test_an_installed_package_brings_tools_and_groups(
    installed: Callable[[dict[str, str]], None],
) -> None:
    installed({"w": f"{HERE}:forecast", "a": f"{HERE}:add"})
    assert sorted(discover()) == ["add", "forecast"]
    assert list(select(["weather"]).specs) == ["forecast"]
    assert list(select(["user", f"{HERE}:add"]).users) == ["add"]
    with pytest.raises(InvalidArgument, match="Did you mean 'weather'") as caught:
        select(["wether"])
    assert "files, user, weather" in str(caught.value)


def test_an_unknown_entry_names_what_exists() -> None:
    with pytest.raises(InvalidArgument, match="Did you mean 'files'") as caught:
        select(["flies"])
    assert "edit, grep, ls, read, write" in str(caught.value)
    assert "module:function" in str(caught.value)


def test_two_tools_of_one_name_are_a_conflict() -> None:
    for entries in (["files", f"{HERE}:another_read"], [f"{HERE}:another_read", "read"]):
        with pytest.raises(Conflict, match="called read"):
            select(entries)
    assert list(select([f"{HERE}:another_read"]).users) == ["read"]


def test_a_package_cannot_replace_a_builtin_tool(
    installed: Callable[[dict[str, str]], None],
) -> None:
    installed({"r": f"{HERE}:another_read"})
    assert select(["read"]).users == {}


def test_a_broken_entry_point_is_named(installed: Callable[[dict[str, str]], None]) -> None:
    installed({"bad": f"{HERE}:untyped"})
    with pytest.raises(InvalidArgument, match="entry point bad"):
        select(["user"])


# --- results


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


# --- the wall


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
