"""The file of settings: what init writes is true, and every key knows its line.

Whatever stands in the file, loading it ends in settings or in a refusal.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import stat
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.config import DEFAULT_TOML, Settings, effective, load_settings, write_default
from perdure.config.keys import flatten
from perdure.config.toml_file import key_lines
from perdure.domain.errors import Conflict, InvalidArgument

# The file that init writes


UNCOMMENTED = re.sub(r'(?m)^#(?=[A-Za-z\["])', "", DEFAULT_TOML)


#: No key of the file, and keys that exclude others of the example: told in prose.
NOT_WRITTEN = {"home", "mcp.tickets.url", "mcp.tickets.headers"}


def uncommented(home: Path) -> Settings:
    (home / "perdure.toml").write_text(UNCOMMENTED)
    return load_settings(home, {})


def test_the_written_file_means_exactly_the_defaults(tmp_path: Path) -> None:
    path = write_default(tmp_path / "new" / "home")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    written = load_settings(path.parent, {})
    assert written.model_dump() == Settings(home=path.parent).model_dump()


def test_the_written_file_is_never_written_over_another(tmp_path: Path) -> None:
    (tmp_path / "perdure.toml").write_text("# mine\n")
    with pytest.raises(Conflict, match="exists already"):
        write_default(tmp_path)
    assert (tmp_path / "perdure.toml").read_text() == "# mine\n"
    with pytest.raises(InvalidArgument, match="is a file, not a folder"):
        write_default(tmp_path / "perdure.toml")


def test_every_key_is_in_the_written_file_and_its_comments_tell_the_true_defaults(
    tmp_path: Path,
) -> None:
    settings = uncommented(tmp_path)
    default = {entry.key: entry.value for entry in effective(Settings(home=tmp_path))}
    # Keys whose default is "none" have an example instead.
    examples = {"store.url", "agents.main.max_steps", "temporal.address", "gateway.port"}
    gateway = ("hosts", "origins", "trusted_proxies", "tls_certificate", "tls_key")
    examples |= {f"gateway.{key}" for key in gateway}
    examples |= {"audit.anchor", "agents.main.intake"}
    examples |= {"context.summary_model", "context.daily_cost"}
    examples |= {"memory.uri", "memory.auto_model"}
    examples |= {f"observability.{key}" for key in ("otlp_endpoint", "metrics_port")}
    examples |= {"observability.temporal_metrics_port"}
    examples |= {"temporal.encryption.active", "temporal.encryption.ui_origins"}
    examples |= {"agents.main.steer_inject", "limits.run_tokens", "limits.run_cost"}
    tables = ("policy.rules.", "channels.", "tools.", "workspace.labels.", "models.")
    tables += ("memory.storage_options.", "temporal.encryption.keys.", "mcp.", "webhooks.")
    for entry in effective(settings):
        if entry.key not in NOT_WRITTEN:
            assert entry.source.startswith("perdure.toml:"), entry.key
            is_example = entry.key in examples or entry.key.startswith(tables)
            assert (entry.value == default.get(entry.key)) != is_example, entry.key


def test_every_source_line_of_the_written_file_holds_its_key(tmp_path: Path) -> None:
    lines = UNCOMMENTED.splitlines()
    for entry in effective(uncommented(tmp_path)):
        if entry.key not in NOT_WRITTEN:
            line = lines[int(entry.source.rpartition(":")[2]) - 1]
            assert line.startswith(f"{entry.key.rpartition('.')[2]} = ")


# Lines of keys, checked against documents whose lines are known


_NAMES = st.one_of(
    st.from_regex(r"[A-Za-z0-9_-]{1,6}", fullmatch=True),
    st.sampled_from(["a.b", "[x]", "k = 1", "#", ""]),
)
_VALUES = st.sampled_from(
    [
        "1",
        '"# no comment = 1"',
        '"""\n[limits]\nx = 1\n\n# y"""',
        "'''\n\n\"\"\"\n[[z]]'''",
        '"""\\\n   a \\\n   b"""',
        "'''[ { \"\"\"\n]\n}\n\"\"\"\n'''",
        "[\n  1, # one ]\n\n  2,\n]",
        '[{ a = 1 }, { b = """\n""" }]',
        "{ a = [\n1], b.c = 2 }",
        "1979-05-27T07:32:00Z",
    ]
)
_GAPS = st.sampled_from(["", "\n", "# x = 1\n", "  # [t]\n\n"])


@given(
    st.lists(
        st.tuples(
            _GAPS,
            st.sampled_from(["table", "array", "key"]),
            st.lists(_NAMES, min_size=1, max_size=2),
            _VALUES,
        ),
        max_size=12,
    ),
    st.sampled_from(["\n", "\r\n"]),
)
def test_each_key_has_the_line_of_the_statement_that_sets_it(
    statements: list[tuple[str, str, list[str], str]], newline: str
) -> None:
    text = ""
    table: tuple[str | int, ...] = ()
    expected: dict[tuple[str | int, ...], int] = {}
    for number, (gap, kind, names, value) in enumerate(statements):
        # A first part of its own keeps every statement from contradicting another.
        names = [f"n{number}", *names]
        spelt = ".".join(f'"{name}"' for name in names)
        text += gap
        line = text.count("\n") + 1
        if kind == "key":
            text += f" {spelt}\t= {value} # end\n"
            expected[(*table, *names)] = line
        else:
            text += f"[{spelt}]\n" if kind == "table" else f"[[{spelt}]]\n"
            table = (*names,) if kind == "table" else (*names, 0)
            expected[table] = line
    tomllib.loads(text)
    found = key_lines(text.replace("\n", newline))
    assert {key: found.get(key) for key in expected} == expected


def test_tables_of_an_array_are_told_apart() -> None:
    lines = key_lines("[[p.r]]\nid = 1\n[[p.r]]\nid = 2\n[p.r.sub]\nx = 1\n[[p.r.deep]]\n")
    assert lines["p", "r", 0, "id"] == 2
    assert lines["p", "r", 1, "id"] == 4
    assert lines["p", "r", 1, "sub", "x"] == 6
    assert lines["p", "r", 1, "deep", 0] == 7


# Files of all kinds


def spelt(value: object) -> str:
    """`value` as inline TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {spelt(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(spelt, value)) + "]"
    return json.dumps(value) if isinstance(value, (str, bool)) else repr(value)


_KEYS = st.sampled_from(["agents", "main", "default_agent", "model", "tools", "clearance"])
_KEYS |= st.sampled_from(["limits", "inbox", "max_steps", "store", "url", "temporal", "gateway"])
_KEYS |= st.sampled_from(["home", "port", "a b", "", "[key]", "0", "str"])
_KEYS |= st.sampled_from(["channels", "models", "policy", "rules", "labels", "workspace", "label"])
_SCALARS = st.sampled_from(["main", "", "x", "x" * 99, "PUBLIC", 0, 7, 10**30, True, 0.5])
_SCALARS |= st.sampled_from([float("inf"), float("nan"), dt.date(2020, 1, 1), dt.time(1)])
_ANYTHING = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_KEYS, inner, max_size=4)
)


@given(st.dictionaries(_KEYS, _ANYTHING, max_size=6), st.sets(_KEYS))
def test_whatever_is_written_is_in_force_or_refused_with_its_place(
    tmp_path_factory: pytest.TempPathFactory, values: dict[str, object], variables: set[str]
) -> None:
    home = tmp_path_factory.mktemp("home")
    environ = {f"PERDURE_{name.upper()}": "7" for name in variables} | {"PERDURE_HOME": ""}
    toml = "".join(f"{json.dumps(key)} = {spelt(value)}\n" for key, value in values.items())
    (home / "perdure.toml").write_text(toml)
    try:
        in_force = {entry.key for entry in effective(load_settings(home, environ))}
    except InvalidArgument as error:
        in_force, refused = set(), error.message
    else:
        refused = ""
    written = {".".join(map(str, key)) for key, _ in flatten(values)}
    assert written <= in_force or re.search("perdure.toml|environment PERDURE_", refused)
