"""Users' functions as tools: complete when loaded, harmless when called, found by name."""

from __future__ import annotations

import asyncio
import enum
import functools
import importlib
import json
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, BeforeValidator, Field

from perdure.domain.errors import Conflict, InvalidArgument
from perdure.domain.steps import Lane
from perdure.tools import (
    Effect,
    ToolContext,
    discover,
    from_function,
    groups,
    load,
    select,
    tool,
)

# Functions that stand for a user's own module, loaded as `tests.test_user_tools:NAME`

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


HERE = "tests.test_user_tools"
CONTEXT = ToolContext("default:bob", 2, 3, Path("/w"), "key-1")


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
    assert "sessions, subagents, user, weather" in str(caught.value)


def test_an_unknown_entry_names_what_exists() -> None:
    with pytest.raises(InvalidArgument, match="Did you mean 'files'") as caught:
        select(["flies"])
    assert "grep, ls" in str(caught.value)
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
