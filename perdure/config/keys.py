"""The keys of the settings, read off the models: the one source for names and nesting.

A key is a path: `("agents", "main", "model")` is `agents.main.model` in a dotted spelling.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeGuard, get_args, get_origin

from pydantic import BaseModel

Key = tuple[str | int, ...]

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def dotted(key: Key) -> str:
    """`key` as TOML spells it."""
    return ".".join(
        part if _BARE.fullmatch(part) else json.dumps(part, ensure_ascii=False)
        for part in map(str, key)
    )


def leaf_keys(model: type[BaseModel], values: object) -> Iterator[tuple[Key, Any]]:
    """Every settable key of `model` with its type.

    A table of tables (`[agents.NAME]`) has the members that `values` has.
    """
    for name, field in model.model_fields.items():
        kind = field.annotation
        inner = values.get(name) if isinstance(values, dict) else None
        tables: list[tuple[Key, type[BaseModel], object]]
        if _is_model(kind):
            tables = [((name,), kind, inner)]
        elif get_origin(kind) is dict and _is_model(member_kind := get_args(kind)[1]):
            members = inner if isinstance(inner, dict) else {}
            tables = [((name, member), member_kind, members[member]) for member in members]
        else:
            yield (name,), kind
            continue
        for prefix, table, table_values in tables:
            for rest, leaf in leaf_keys(table, table_values):
                yield (*prefix, *rest), leaf


def names_in(model: type[BaseModel], table: Key) -> list[str]:
    """The key names that the table at `table` may have, `()` being the top level."""
    kind: Any = model
    for part in table:
        if get_origin(kind) in (dict, list):
            kind = get_args(kind)[-1]
        else:
            kind = kind.model_fields[part].annotation
    return list(kind.model_fields)


def flatten(values: Mapping[Any, Any], prefix: Key = ()) -> Iterator[tuple[Key, Any]]:
    """Every key of nested tables, and of lists of tables, with its value."""
    for name, value in values.items():
        if isinstance(value, (list, tuple)) and any(isinstance(one, dict) for one in value):
            value = dict(enumerate(value))
        if isinstance(value, dict):
            yield from flatten(value, (*prefix, name))
        else:
            yield (*prefix, name), value


def is_table(kind: Any) -> bool:
    """Whether a key of the type `kind` holds tables of the file, and no single value."""
    members = get_args(kind)
    return get_origin(kind) is dict or (
        get_origin(kind) in (list, tuple) and any(map(_is_model, members))
    )


def did_you_mean(name: str, known: Iterable[str], prefix: str = "") -> str:
    """A sentence that offers the nearest spellings of `name`, or nothing.

    A `prefix` that all names have does not make them any nearer.
    """
    endings = [one.removeprefix(prefix) for one in known]
    near = difflib.get_close_matches(name.removeprefix(prefix), endings, n=2, cutoff=0.7)
    near = [prefix + ending for ending in near]
    return f" Did you mean {' or '.join(near)}?" if near else ""


def _is_model(kind: Any) -> TypeGuard[type[BaseModel]]:
    return isinstance(kind, type) and issubclass(kind, BaseModel)
