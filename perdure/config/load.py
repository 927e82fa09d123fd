"""From a file and an environment to checked settings, or to every reason why not.

Invariant: what is wrong is told all at once, each with its place, its value and what is
allowed; settings that are partly right never leave this module.
"""

from __future__ import annotations

import copy
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from perdure.config.environment import (
    CONFIG,
    HOME,
    Override,
    read_environment,
    variable_name,
)
from perdure.config.keys import Key, did_you_mean, dotted, leaf_keys, names_in
from perdure.config.masking import MASK, mask
from perdure.config.settings import DEFAULT_AGENT, Settings
from perdure.config.toml_file import TomlFile, read_toml
from perdure.domain.errors import InvalidArgument
from perdure.policy.parsing import RuleErrors, parse_rules

FILE_NAME = "perdure.toml"


class _Problem(NamedTuple):
    line: int
    text: str


def load_settings(home: Path | None = None, environ: Mapping[str, str] = os.environ) -> Settings:
    """The settings in force.

    Args:
        home: the folder all data lives in; None is PERDURE_HOME, else `~/.perdure`. The file is
            `perdure.toml` there (it may be absent), or the one PERDURE_CONFIG names.
        environ: where PERDURE_* variables are looked up; they go before the file.

    Raises:
        InvalidArgument: naming file, line, key and value of all that is wrong, and what is
            allowed.
    """
    place, home_source = _home(home, environ)
    file = _file(place, environ)
    values = copy.deepcopy(file.values)
    values.setdefault("agents", {DEFAULT_AGENT: {}})
    overrides, unknown = read_environment(environ, Settings, values)
    for key, override in overrides.items():
        _put(values, key, override.value)

    problems = [_Problem(0, f"environment {name}: {what}") for name, what in unknown.items()]
    problems += _read_rules(values, file)
    if "home" in values:
        line = file.lines[("home",)]
        told = f"{file.path}, line {line}: home is not set in the file. Use --home or {HOME}."
        problems.append(_Problem(line, told))
    try:
        settings = Settings.model_validate({**values, "home": place}, strict=True, context=values)
    except ValidationError as error:
        problems += [_problem(one, values, file, overrides) for one in error.errors()]
    if problems:
        raise InvalidArgument(*_told(problems))
    sources = dict(_sources(file, overrides, place))
    return settings.with_sources({**sources, "home": home_source})


def _read_rules(values: dict[str, Any], file: TomlFile) -> list[_Problem]:
    """Put the rules in the place of their tables, or tell what is wrong with them."""
    policy = values.get("policy")
    if not isinstance(policy, dict) or "rules" not in policy:
        return []
    try:
        policy["rules"] = parse_rules(policy["rules"]).rules
    except RuleErrors as errors:
        policy["rules"] = ()
        problems = []
        for item in errors.items:
            line = file.nearest_line(item.path) or 0
            problems.append(
                _Problem(line, f"{file.path}, line {line}: {item.dotted}: {item.message}")
            )
        return problems
    return []


def home_folder(home: Path | None = None, environ: Mapping[str, str] = os.environ) -> Path:
    """The home folder in force, found as `load_settings` does, without reading what is in it."""
    return _home(home, environ)[0]


def _home(home: Path | None, environ: Mapping[str, str]) -> tuple[Path, str]:
    if home is not None:
        chosen, source = Path(home), "command line"
    elif environ.get(HOME):
        chosen, source = Path(environ[HOME]), f"environment {HOME}"
    else:
        chosen, source = Path("~/.perdure"), "default"
    return _absolute(chosen), source


def _file(home: Path, environ: Mapping[str, str]) -> TomlFile:
    named = environ.get(CONFIG)
    path = _absolute(Path(named)) if named else home / FILE_NAME
    try:
        return read_toml(path)
    except FileNotFoundError:
        if named:
            raise InvalidArgument(
                f"environment {CONFIG}: {path} does not exist.",
                f"Name an existing file, or unset {CONFIG} to use {home / FILE_NAME}.",
            ) from None
        return TomlFile(path)


def _absolute(path: Path) -> Path:
    try:
        return path.expanduser().absolute()
    except RuntimeError:
        raise InvalidArgument(
            f"The path {path} begins with ~, and no such user's folder is known.",
            "Give a whole path.",
        ) from None


def _put(values: dict[str, Any], key: Key, value: Any) -> None:
    table: Any = values
    for part in key[:-1]:
        table = table.setdefault(part, {})
        # The file has something else where a table belongs, and is refused for that.
        if not isinstance(table, dict):
            return
    table[key[-1]] = value


def _sources(
    file: TomlFile, overrides: Mapping[Key, Override], home: Path
) -> Iterator[tuple[str, str]]:
    shown = file.path.name if file.path.parent == home else str(file.path)
    for key, line in file.lines.items():
        yield dotted(key), f"{shown}:{line}"
    for key, override in overrides.items():
        yield dotted(key), f"environment {override.variable}"


def _problem(
    error: ErrorDetails, values: dict[str, Any], file: TomlFile, overrides: Mapping[Key, Override]
) -> _Problem:
    key = error["loc"]
    # pydantic marks a wrong name in a table of tables, as in [agents."a b"], by one more part.
    is_name = key[-1] == "[key]" and error["type"] != "extra_forbidden"
    key = key[:-1] if is_name else key
    line = file.nearest_line(key) or 0
    place = f"{file.path}, line {line}" if line else str(file.path)
    override = next((overrides[key[:n]] for n in range(len(key) + 1) if key[:n] in overrides), None)
    if override:
        line, place = 0, f"environment {override.variable}"
    if error["type"] == "extra_forbidden":
        return _Problem(line, f"{place}: {_unknown_key(key, values)}")
    value = "" if is_name else _shown(key, error["input"])
    told = f"{place}: {dotted(key)}{value} {_allowed(error)}."
    if error["type"] == "missing":
        told += f" Set it there, or in {variable_name(key)}."
    return _Problem(line, told)


def _unknown_key(key: Key, values: dict[str, Any]) -> str:
    table, name = key[:-1], str(key[-1])
    where = f"a key of [{dotted(table)}]" if table else "a key or table of the top level"
    known = [one for one in names_in(Settings, table) if one != "home"]
    leaves = [leaf for leaf, _ in leaf_keys(Settings, values) if leaf != ("home",)]
    elsewhere = [leaf[:-1] for leaf in leaves if leaf[-1] == name]
    advice = did_you_mean(name, known)
    if not advice and elsewhere:
        tables = " or ".join(f"in [{dotted(t)}]" if t else "above every [table]" for t in elsewhere)
        advice = f" It belongs {tables}."
    return f"{dotted(key)} is not {where}.{advice} Known there: {', '.join(known)}."


def _shown(key: Key, value: object) -> str:
    if isinstance(value, dict):
        return ""
    name = next(part for part in reversed(key) if isinstance(part, str))
    # The URL of a channel may hold a token anywhere.
    shown = MASK if key[0] == "channels" and name == "url" else mask(name, value)
    text = json.dumps(shown, ensure_ascii=False, default=str)
    return f" = {text if len(text) <= 80 else text[:79] + '…'}"


def _allowed(error: ErrorDetails) -> str:
    """What pydantic says is allowed, in the words of TOML."""
    if error["type"] in ("model_type", "dict_type"):
        return "must be a table"
    if error["type"] == "missing":
        return "is missing"
    said = error["msg"].removeprefix("Value error, ")
    return re.sub(r" after validation.*", "", re.sub(r"^\w+ should ", "must ", said))


def _told(problems: list[_Problem]) -> tuple[str, str]:
    if len(problems) == 1:
        hint = "`perdure init` in an empty home writes a file that explains every key."
        return problems[0].text, hint
    told = "\n".join(f"  {problem.text}" for problem in sorted(problems))
    return f"{len(problems)} settings are wrong:\n{told}", ""
