"""Settings: what is in force is what was written, every mistake is told with its place.

The promises: defaults, file and environment in that order; all mistakes of all sources at
once, each with file, line, key, value and what is allowed; no secret in any of it.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import make_url

from perdure.config import (
    AgentSettings,
    Settings,
    effective,
    load_settings,
)
from perdure.config.keys import dotted, is_table, leaf_keys
from perdure.config.masking import mask
from perdure.domain.errors import InvalidArgument, NotFound
from perdure.domain.keys import SessionKey
from perdure.domain.labels import Label
from tests.support.settings import load, refused


def sources(settings: Settings) -> dict[str, str]:
    return {entry.key: entry.source for entry in effective(settings)}


# Where settings come from


def test_without_a_file_there_is_one_rehearsing_agent_with_all_tools_on_our_own_data(
    tmp_path: Path,
) -> None:
    settings = load(tmp_path)
    assert list(settings.agents) == ["main"]
    assert settings.agent(None).models == ("rehearsal",)
    assert settings.agent("main").tools == [
        *("files", "sessions", "subagents", "context", "memory"),
    ]
    assert settings.agent().clearance is Label.CONFIDENTIAL
    assert settings.home == tmp_path
    assert settings.store_url == f"sqlite:///{tmp_path}/perdure.db"


def test_the_environment_goes_before_the_file_and_the_file_before_defaults(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        "[limits]\nmax_steps = 7\ninbox = 9\n",
        {"PERDURE_LIMITS_MAX_STEPS": "8", "PERDURE_TEMPORAL_ADDRESS": "temporal:7233"},
    )
    assert (settings.limits.max_steps, settings.limits.inbox) == (8, 9)
    assert settings.temporal.address == "temporal:7233"
    told = sources(settings)
    assert told["limits.max_steps"] == "environment PERDURE_LIMITS_MAX_STEPS"
    assert told["limits.inbox"] == "perdure.toml:3"
    assert told["limits.turns_per_run"] == "default"
    assert told["home"] == "command line"


def test_the_home_is_the_argument_else_the_variable_else_in_the_users_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    environ = {"PERDURE_HOME": str(tmp_path / "a")}
    assert load_settings(tmp_path / "b", environ).home == tmp_path / "b"
    assert load_settings(None, environ).home == tmp_path / "a"
    assert sources(load_settings(None, environ))["home"] == "environment PERDURE_HOME"
    assert load_settings(None, {"PERDURE_HOME": ""}).home == tmp_path / ".perdure"
    assert sources(load_settings(None, {}))["home"] == "default"


def test_perdure_config_names_another_file_which_must_exist(tmp_path: Path) -> None:
    other = tmp_path / "etc" / "prod.toml"
    environ = {"PERDURE_CONFIG": str(other)}
    assert f"PERDURE_CONFIG: {other} does not exist" in refused(tmp_path, None, environ)
    other.parent.mkdir()
    other.write_text('[gateway]\nhost = "0.0.0.0"\n')
    settings = load(tmp_path, "[gateway]\nport = 1\n", environ)
    assert (settings.gateway.host, settings.gateway.port) == ("0.0.0.0", None)
    assert settings.source("gateway.host") == f"{other}:2"


def test_every_setting_has_a_variable(tmp_path: Path) -> None:
    toml = "[agents.main]\n[agents.code-review]\n[tools.read]\n[models.x]\n"
    toml += '[channels.mail]\nurl = "file:x"\n[channels.mail.recipients.bob]\n'
    examples = {"url": "sqlite:///x.db", "address": "h:1", "clearance": "PUBLIC"}
    examples |= {"default_agent": "code-review", "tools": "a,b", "model": "x,y", "anchor": "/a"}
    examples |= dict.fromkeys(["intake", "level", "label"], "INTERNAL") | {"secret": "s" * 16}
    examples |= {"delivery": "at-least-once", "channels.mail.url": "console:"}
    examples |= dict.fromkeys(["max_steps", "step_attempts", "turns_per_run"], "7")
    examples |= {"keys": "required", "origins": "https://a", "trusted_proxies": "10.0.0.7"}
    examples |= dict.fromkeys(["tls_certificate", "tls_key"], "/a")
    examples |= {"steer_inject": "true", "spawn_from_tainted": "block", "allow_spawn": "a,b"}
    examples |= dict.fromkeys(["spawn_depth", "children", "spawn_queue"], "7")
    examples |= {"uri": "/a", "memory_auto": "true", "pool_size": "7"}
    examples |= {"otlp_endpoint": "http://h:1", "logs": "json"}
    examples |= {"threshold": "0.5", "leaf_target_ratio": "0.25", "fresh_tail_share": "0.5"}
    leaves = leaf_keys(Settings, tomllib.loads(toml))
    # Refused: the secret of a channel that has none, and what needs a key that is not there.
    without = {("home",), ("channels", "mail", "secret")}
    without |= {("temporal", "encryption", name) for name in ("active", "refuse_clear")}
    for key in [dotted(key) for key, kind in leaves if key not in without and not is_table(kind)]:
        name = "PERDURE_" + re.sub("[.-]", "_", key).upper()
        example = examples.get(key, examples.get(key.split(".")[-1], "1001"))
        settings = load(tmp_path, toml, {name: example})
        changed = {entry.key for entry in effective(settings) if entry.source != "default"}
        assert changed - {"home", "channels.mail.url"} == {key} - {"channels.mail.url"}, name
        assert settings.source(key) == f"environment {name}"


def test_perdure_model_sets_every_agent_and_commas_make_a_fallback_chain(tmp_path: Path) -> None:
    toml = '[agents.main]\nmodel = "a"\n[agents.lead]\n'
    settings = load(tmp_path, toml, {"PERDURE_MODEL": "openai:x, rehearsal"})
    assert {agent.models for agent in settings.agents.values()} == {("openai:x", "rehearsal")}
    assert settings.source("agents.lead.model") == "environment PERDURE_MODEL"
    single = {"PERDURE_MODEL": "x", "PERDURE_AGENTS_LEAD_MODEL": "y"}
    settings = load(tmp_path, toml, single)
    assert (settings.agent("main").model, settings.agent("lead").model) == ("x", "y")


def test_an_empty_variable_counts_as_absent(tmp_path: Path) -> None:
    assert load(tmp_path, None, {"PERDURE_STORE_URL": ""}).store.url is None


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/"), min_size=1))
def test_the_store_is_in_the_home_whatever_its_name(name: str) -> None:
    home = Path("/srv") / name
    assert make_url(Settings(home=home).store_url).database == str(home / "perdure.db")


# What is refused, and how it is told


def test_all_mistakes_are_told_at_once_each_with_its_place(tmp_path: Path) -> None:
    toml = """\
home = "/x"
[agents.main]
modell = "x"
max_steps = 0
clearance = "SECRET"

[limits]
inbox = "many"
step_timeout = inf
[temporal]
address = "http://x"
[nothing]
"""
    environ = {"PERDURE_GATEWAY_PORT": "high", "PERDURE_TEMPRAL_ADDRESS": "x:1"}
    told = refused(tmp_path, toml, environ)
    path = tmp_path / "perdure.toml"
    lines = [line.strip() for line in told.splitlines()]
    assert lines == [
        "10 settings are wrong:",
        'environment PERDURE_GATEWAY_PORT: gateway.port = "high" must be a valid integer.',
        "environment PERDURE_TEMPRAL_ADDRESS: no such setting. "
        "Did you mean PERDURE_TEMPORAL_ADDRESS?",
        f"{path}, line 1: home is not set in the file. Use --home or PERDURE_HOME.",
        f"{path}, line 3: agents.main.modell is not a key of [agents.main]. Did you mean model? "
        "Known there: model, instructions, tools, clearance, intake, allow_spawn, "
        "steer_inject, memory_auto, max_steps, context_window.",
        f"{path}, line 4: agents.main.max_steps = 0 must be greater than or equal to 1.",
        f'{path}, line 5: agents.main.clearance = "SECRET" must be one of '
        "PUBLIC, INTERNAL, CONFIDENTIAL, RESTRICTED.",
        f'{path}, line 8: limits.inbox = "many" must be a valid integer.',
        f"{path}, line 9: limits.step_timeout = Infinity must be a finite number.",
        f'{path}, line 11: temporal.address = "http://x" must be host:port, as in localhost:7233.',
        f"{path}, line 12: nothing is not a key or table of the top level. "
        f"Known there: {', '.join(name for name in Settings.model_fields if name != 'home')}.",
    ]


@pytest.mark.parametrize(
    ("toml", "told"),
    [
        ("limits = 3", "line 1: limits = 3 must be a table"),
        ("[agents]\nmain = 3", "line 2: agents.main = 3 must be a table"),
        ("agents = {}", "line 1: agents must have at least 1 item"),
        ('[agents."a b"]', 'line 1: agents."a b" must be named with 1 to 64 letters'),
        ("[agents.main]\nmodel = []", "line 2: agents.main.model = [] must be a model name or"),
        ("[agents.main]\nmodel = 3", "line 2: agents.main.model = 3 must be a model name or"),
        ('[agents.main]\ntools = [\n  "a",\n  4]', "line 2: agents.main.tools.1 = 4 must be a"),
        ('[limits]\nmax_steps = "5"', 'line 2: limits.max_steps = "5" must be a valid integer'),
        ("[limits]\nmax_steps = true", "line 2: limits.max_steps = true must be a valid integer"),
        ("[limits]\nmax_steps = 900", "line 2: limits.max_steps = 900 must be less than or equal"),
        ('[store]\nurl = "mysql://x"', "must start with sqlite://"),
        ("[gateway]\nport = 65536", "line 2: gateway.port = 65536 must be less than or equal to"),
        ("[agents.lead]", 'default_agent = "main" must be a configured agent: lead'),
        ('default_agent = "x"', 'line 1: default_agent = "x" must be a configured agent: main'),
        ('default_agent = "x"\n[agents.main]\ny = 1', 'line 1: default_agent = "x" must be'),
        ("max_steps = 5", "It belongs in [agents.main] or in [limits]."),
        ('[limits]\ndefault_agent = "main"', "It belongs above every [table]."),
    ],
)
def test_a_wrong_value_is_told_with_its_line_and_what_is_allowed(
    tmp_path: Path, toml: str, told: str
) -> None:
    assert told in refused(tmp_path, toml)


@pytest.mark.parametrize(
    ("toml", "told"),
    [
        ("a = 1\nb =\n", "line 2, column 4: Invalid value"),
        ("[limits]\n\ntools = [\n 1,\n", "line 3: what begins here is not"),
        ("\n\nx = '''\n\n\n", "line 3: "),
        ("[limits]\ninbox = 1\ninbox = 2\n", "line 3, column 10: Cannot overwrite a value: a key"),
        ("[limits]\n[limits]\n", "line 2, column 8: Cannot declare ('limits',) twice: a key"),
        ("limits = " + "[" * 5_000, "nested too deeply"),
        (b"[limits]\n# caf\xe9\n", "line 2: the byte 0xE9 is not UTF-8"),
    ],
)
def test_a_file_that_is_not_toml_is_told_with_its_line(
    tmp_path: Path, toml: str | bytes, told: str
) -> None:
    message = refused(tmp_path, toml)
    assert message.startswith(f"{tmp_path / 'perdure.toml'}")
    assert told in message


def test_a_folder_in_place_of_a_file_and_a_file_in_place_of_a_folder_are_told(
    tmp_path: Path,
) -> None:
    assert "perdure.toml cannot be read: Not a directory" in refused(Path("/dev/null"))
    (tmp_path / "perdure.toml").mkdir()
    assert "perdure.toml is a directory, not a TOML file" in refused(tmp_path)


def test_a_file_from_another_system_is_read_all_the_same(tmp_path: Path) -> None:
    settings = load(tmp_path, b"\xef\xbb\xbf[limits]\r\n\r\ninbox = 4\r\n")
    assert settings.source("limits.inbox") == "perdure.toml:3"


def test_unknown_variables_are_refused_by_name_and_those_of_tests_are_not(tmp_path: Path) -> None:
    told = refused(tmp_path, None, {"PERDURE_STORE_ULR": "x"})
    assert "PERDURE_STORE_ULR: no such setting. Did you mean PERDURE_STORE_URL" in told
    assert "PERDURE_AGENTS_LEAD_MODEL" in refused(tmp_path, None, {"PERDURE_AGENTS_LEAD_MODEL": ""})
    load(tmp_path, None, {"PERDURE_TEST_ANYTHING": "x", "PERDURE": "x", "HOME": "x"})


def test_settings_never_change(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="frozen"):
        load(tmp_path).default_agent = "x"  # type: ignore[misc]


# Which agent answers


def test_an_agent_that_is_not_there_is_told_with_those_that_are(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, agents={"main": AgentSettings(), "lead": AgentSettings()})
    with pytest.raises(NotFound, match=r"no agent 'x'\. Configured agents: main, lead"):
        settings.agent("x")


@pytest.mark.parametrize(
    ("key", "asked", "agent"),
    [
        ("t:u", None, "main"),
        ("t:u", "lead", "lead"),
        ("t:u~agent~lead", None, "lead"),
        ("t:u~agent~lead", "lead", "lead"),
    ],
)
def test_a_session_runs_the_agent_asked_for_else_its_keys_else_the_default(
    tmp_path: Path, key: str, asked: str | None, agent: str
) -> None:
    settings = Settings(home=tmp_path, agents={"main": AgentSettings(), "lead": AgentSettings()})
    assert settings.agent_for(SessionKey.parse(key), asked) == agent


@pytest.mark.parametrize(
    ("key", "asked", "told"),
    [
        ("t:u", "x", "no agent 'x'. Configured agents: main"),
        ("t:u", "", "no agent ''"),
        ("t:u~agent~x", None, "no agent 'x'. Configured agents: main"),
        ("t:u~agent~main", "x", "belongs to the agent 'main', not to 'x'"),
    ],
)
def test_a_session_never_runs_an_agent_that_is_unknown_or_another_than_its_keys(
    tmp_path: Path, key: str, asked: str | None, told: str
) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(told)):
        Settings(home=tmp_path).agent_for(SessionKey.parse(key), asked)


# Secrets


def test_no_error_and_no_listing_shows_a_password(tmp_path: Path) -> None:
    url = "sqlite://me:hunter2@db/perdure?ssl=on&sslpassword=hunter2"
    settings = load(tmp_path, f'[store]\nurl = "{url}"\n')
    (entry,) = [entry for entry in effective(settings) if entry.key == "store.url"]
    assert entry.secret
    assert entry.value == "sqlite://me:***@db/perdure?ssl=on&sslpassword=***"
    assert settings.store_url == url
    for environ in {"PERDURE_STORE_URL": f"mysql+{url}"}, {}:
        told = refused(tmp_path, f'[store]\nurl = "mysql+{url}"\napi_key = "hunter2"\n', environ)
        assert "hunter2" not in told


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r"), min_size=3))
def test_the_password_of_a_url_is_hidden_whole(password: str) -> None:
    assert mask("url", f"scheme://user:{password}@host/x") == "scheme://user:***@host/x"


@pytest.mark.parametrize("name", ["api_key", "KEY", "keys", "bot-token", "client_secret"])
def test_a_value_named_as_a_secret_is_hidden(name: str) -> None:
    assert mask(name, "x") == "***"
    assert mask(name, ["x", "y"]) == ["***", "***"]


@pytest.mark.parametrize("name", ["monkey", "keyboard", "tokenizer", "host"])
def test_a_value_not_named_as_a_secret_is_shown(name: str) -> None:
    assert mask(name, "x") == "x"


def test_a_number_is_no_secret() -> None:
    assert mask("leaf_chunk_tokens", 4_000) == 4_000
