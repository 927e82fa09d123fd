"""What a tool is, before anyone runs it: its name, its arguments and the traits that route it.

Invariant: pure data. A `ToolSpec` can be read inside a workflow, and `parse` answers every
text a model may write with validated arguments or with `InvalidArgument`, never otherwise.
"""

from __future__ import annotations

import copy
import math
import re
import reprlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails, from_json

from perdure.domain.errors import InvalidArgument
from perdure.domain.steps import Lane

#: What every provider accepts as the name of a function.
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")

#: Wrong arguments told in one refusal: enough to mend a call, short enough to read.
_MAX_ERRORS = 4

#: Keys of a JSON schema whose values map names to schemas; a name there may be "title".
_SCHEMA_MAPS = ("properties", "$defs", "patternProperties")


class Effect(StrEnum):
    """What it means to run the same call a second time."""

    #: No effect at all.
    READ = "read"
    #: The same state as after the first run.
    IDEMPOTENT = "idempotent"
    #: A second effect: must never be repeated silently.
    ONCE = "once"


class Arguments(BaseModel):
    """Base of parameter models: closed, immutable, finite numbers only.

    Validation is lax where models are: `"5"` passes for 5 and `"true"` for true. A number is
    not taken for a string, and an unknown argument is refused by its name.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True)
class ToolSpec:
    """One tool as a model and a workflow see it. `timeout` is seconds; None is the default."""

    name: str
    description: str
    group: str
    parameters: type[BaseModel]
    lane: Lane
    effect: Effect
    timeout: float | None = None
    #: Whether it is handed the whole workspace, and may read and write any file of it.
    workspace: bool = False
    #: Whether a call may wait for others: it is run again, and finds in the store how far it is.
    resumable: bool = False
    #: Arguments whose mention makes a call too slow for a local activity.
    slow_with: frozenset[str] = frozenset()
    #: Calls that a person must approve, whatever the rules say: an argument, and its values.
    approval: Mapping[str, frozenset[str]] = field(default_factory=dict, hash=False)
    #: The MCP server that brings it, what it is called there, and the JSON schema that the server
    #: gave of its arguments.
    server: str | None = None
    remote: str = ""
    given: Mapping[str, Any] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InvalidArgument(
                f"{shown(self.name)} cannot be the name of a tool.",
                "A name is a letter, then up to 63 letters, digits, '_' or '-'.",
            )
        if self.timeout is not None and not 0 < self.timeout < math.inf:
            raise InvalidArgument(
                f"The tool {self.name} has the timeout {self.timeout!r}.",
                "A timeout is a positive number of seconds, or None for the default.",
            )

    def asks(self, arguments: Mapping[str, object]) -> bool:
        """Whether a call with these arguments waits for a person's approval."""
        return any(str(arguments.get(name)) in values for name, values in self.approval.items())

    def lane_of(self, arguments: str) -> Lane:
        """How a call with the JSON text `arguments` runs."""
        slow = any(f'"{name}"' in arguments for name in self.slow_with)
        return Lane.ACTIVITY if slow else self.lane

    def schema(self) -> dict[str, Any]:
        """The JSON schema of the arguments, by the names a caller uses, without titles."""
        return copy.deepcopy(_schema(self.parameters) if self.given is None else dict(self.given))

    def parse(self, arguments: str) -> BaseModel:
        """The validated arguments that the JSON text `arguments` holds; blank text is `{}`.

        Raises:
            InvalidArgument: whatever is wrong with the text: which argument, its value, what
                is allowed. No other exception leaves this method.
        """
        text = arguments if arguments.strip() else "{}"
        self._check_json(text)
        try:
            return self.parameters.model_validate_json(text)
        except ValidationError as error:
            raise self._refusal(error) from None
        except Exception as error:  # a tool author's own validators may raise anything
            raise InvalidArgument(
                f"{self.name}: the arguments cannot be validated: {type(error).__name__}: "
                f"{reprlib.repr(str(error))}",
                self._usage(),
            ) from error

    def _check_json(self, text: str) -> None:
        try:
            value = from_json(text.encode(), allow_inf_nan=False)
        except UnicodeEncodeError:
            raise InvalidArgument(
                f"{self.name}: the arguments hold half of a surrogate pair, which is not text.",
                "Write the whole character.",
            ) from None
        except ValueError as error:
            raise InvalidArgument(
                f"{self.name}: the arguments are not valid JSON: {error}.", self._usage()
            ) from None
        if not isinstance(value, dict):
            raise InvalidArgument(
                f"{self.name}: the arguments are {shown(value)}, not a JSON object.",
                self._usage(),
            )
        # `1e999` is well-formed JSON and infinite.
        if not _finite(value):
            raise InvalidArgument(f"{self.name}: a number is too large.", self._usage())

    def _refusal(self, error: ValidationError) -> InvalidArgument:
        details = error.errors(include_url=False, include_context=False)
        told = [self._told(detail) for detail in details[:_MAX_ERRORS]]
        if len(details) > _MAX_ERRORS:
            told.append(f"and {len(details) - _MAX_ERRORS} more")
        return InvalidArgument(f"{self.name}: {'; '.join(told)}.", self._usage())

    def _told(self, detail: ErrorDetails) -> str:
        where = ".".join(_short(str(part)) for part in detail["loc"]) or "the arguments"
        if detail["type"] == "missing":
            return f"the argument {where} is missing"
        if detail["type"] == "extra_forbidden":
            near = get_close_matches(where, self.schema().get("properties", {}), n=1)
            return f"there is no argument {where}" + (f" (did you mean {near[0]}?)" if near else "")
        return f"{where} is {shown(detail['input'])}: {_short(detail['msg'])}"

    def _usage(self) -> str:
        if self.given is not None:
            names = ", ".join(map(shown, self.given.get("properties", {})))
            return f"Arguments are a JSON object with {names}." if names else ""
        schema = self.schema()
        required = set(schema.get("required", ()))
        words = [
            f"{name} ({_kind(part)}"
            + (", required)" if name in required else f", default {shown(part.get('default'))})")
            for name, part in schema.get("properties", {}).items()
        ]
        return f"Arguments are {'; '.join(words)}." if words else "It takes no arguments: {}."


def shown(value: object) -> str:
    """`value` as it may stand in an error message: short, on one line, never failing."""
    try:
        return _short(_REPR.repr(value))
    except Exception:  # a huge integer, or a class with a broken __repr__
        return f"a value of type {type(value).__name__}"


_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = 80
_REPR.maxlevel = 3


def _short(text: str, limit: int = 200) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _finite(value: object) -> bool:
    # The depth is bounded: `from_json` refuses more than 200 levels.
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(_finite, value.values()))
    return all(map(_finite, value)) if isinstance(value, list) else True


def _kind(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return " | ".join(map(shown, schema["enum"]))
    if "const" in schema:
        return shown(schema["const"])
    if "anyOf" in schema:
        return " or ".join(_kind(part) for part in schema["anyOf"])
    return str(schema.get("type") or schema.get("$ref", "any").rpartition("/")[2])


@lru_cache(maxsize=512)
def _schema(parameters: type[BaseModel]) -> dict[str, Any]:
    schema = parameters.model_json_schema(by_alias=True)
    for node in _nodes(schema):
        # Titles only repeat the names; a description at the top would repeat the tool's.
        if isinstance(node.get("title"), str):
            del node["title"]
    schema.pop("description", None)
    schema.setdefault("properties", {})
    return schema


def _nodes(value: object) -> Iterator[dict[str, Any]]:
    """Every schema inside a schema, itself first; defaults, enums and examples are data."""
    if isinstance(value, list):
        for part in value:
            yield from _nodes(part)
    if not isinstance(value, dict):
        return
    yield value
    for key, part in value.items():
        if key in _SCHEMA_MAPS and isinstance(part, dict):
            for inner in part.values():
                yield from _nodes(inner)
        elif key not in ("default", "enum", "const", "examples"):
            yield from _nodes(part)
