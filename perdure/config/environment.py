"""PERDURE_* variables: the names that settings have in the environment, and their values.

Invariant: a variable that begins with PERDURE_ is a setting, or is refused by name; a
misspelt one never goes unnoticed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError

from perdure.config.keys import Key, did_you_mean, dotted, is_table, leaf_keys

PREFIX = "PERDURE_"
HOME = "PERDURE_HOME"
CONFIG = "PERDURE_CONFIG"
#: The model of every agent at once; an agent's own variable goes before it.
MODEL = "PERDURE_MODEL"
TEST_PREFIX = "PERDURE_TEST_"


class Override(NamedTuple):
    """The value that a variable gives to a key."""

    variable: str
    value: Any


def variable_name(key: Key) -> str:
    """The variable of `key`: `PERDURE_<TABLE>_<KEY>`."""
    return PREFIX + "_".join(str(part) for part in key).upper().replace("-", "_")


def read_environment(
    environ: Mapping[str, str], model: type[BaseModel], values: object
) -> tuple[dict[Key, Override], dict[str, str]]:
    """The overrides by key, and what is wrong with each variable that sets nothing, by its name.

    An empty variable counts as absent, as compose files leave them. A list is written with
    commas. A text that is no value of its key's type is passed on as it stands, to be refused
    with the others.
    """
    leaves = dict(leaf_keys(model, values))
    leaves.pop(("home",), None)
    keys_of: dict[str, list[Key]] = {
        MODEL: [key for key in leaves if key[0] == "agents" and key[-1] == "model"]
    }
    for key in leaves:
        keys_of.setdefault(variable_name(key), []).append(key)

    overrides: dict[Key, Override] = {}
    unknown: dict[str, str] = {}
    # MODEL comes first, so that the variable of a single agent replaces its value.
    for name in sorted(environ, key=lambda name: (name != MODEL, name)):
        text = environ[name]
        if not name.startswith(PREFIX) or name in (HOME, CONFIG) or name.startswith(TEST_PREFIX):
            continue
        if name not in keys_of:
            advice = did_you_mean(name, [HOME, CONFIG, *keys_of], PREFIX)
            unknown[name] = f"no such setting.{advice or f' Settings are {PREFIX}<TABLE>_<KEY>.'}"
        elif tables := [key for key in keys_of[name] if is_table(leaves[key])]:
            unknown[name] = f"{dotted(tables[0])} holds tables, which only the file can set."
        elif text:
            for key in keys_of[name]:
                overrides[key] = Override(name, _from_text(text, leaves[key]))
    return overrides, unknown


def _from_text(text: str, kind: Any) -> Any:
    kinds = get_args(kind) or (kind,)
    if get_origin(kind) is list or any(get_origin(one) is list for one in kinds):
        items = [item.strip() for item in text.split(",")]
        return items[0] if str in kinds and len(items) == 1 else items
    try:
        return TypeAdapter(kind).validate_python(text)
    except ValidationError:
        return text
