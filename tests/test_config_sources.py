"""The settings of MCP servers: refused where they would leak, or mean nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.config.sources import expanded
from perdure.domain.errors import Unavailable
from perdure.domain.labels import Label
from tests.support.settings import load, refused


def test_a_server_is_trusted_with_nothing_that_is_not_said(tmp_path: Path) -> None:
    shop = load(tmp_path, '[mcp.shop]\ncommand = "shop-mcp"').mcp["shop"]
    assert (shop.clearance, shop.level, shop.trust_hints) == (Label.PUBLIC, Label.PUBLIC, False)
    told = load(tmp_path, '[mcp.shop]\nurl = "https://x.example"\nclearance = "INTERNAL"')
    assert told.mcp["shop"].level is Label.INTERNAL


@pytest.mark.parametrize(
    ("toml", "why"),
    [
        ("[mcp.shop]\nargs = []", "mcp.shop must have either a command or a url"),
        ('[mcp.shop]\ncommand = "x"\nurl = "https://x"', "must have either a command or a url"),
        ('[mcp.shop]\nurl = "ftp://x"', 'mcp.shop.url = "ftp://x" must begin with http://'),
        ('[mcp.shop]\nurl = "https://x"\nargs = ["a"]', "must not have args or env beside a url"),
        ('[mcp.a__b]\ncommand = "x"', "must be named with a letter"),
        ('[mcp.shop]\ncommand = "x"\nclearance = "HIGH"', "must be one of PUBLIC"),
        (
            '[mcp.shop]\nurl = "https://x"\nheaders = { Authorization = "Bearer abc" }',
            'must take Authorization from the environment, as in Authorization = "${MY_SECRET}"',
        ),
        (
            '[mcp.shop]\ncommand = "x"\nenv = { API_KEY = "abc" }',
            "must take API_KEY from the environment",
        ),
        (
            '[agents.main]\ntools = ["mcp:shop/find"]',
            "must have [mcp.shop]: agents.main.tools has 'mcp:shop/find'",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(tmp_path: Path, toml: str, why: str) -> None:
    assert why in refused(tmp_path, toml)


def test_a_secret_is_never_shown_where_a_server_is_refused(tmp_path: Path) -> None:
    shown = refused(tmp_path, '[mcp.shop]\nurl = "https://x"\nheaders = { X-Api-Key = "hunter2" }')
    assert "hunter2" not in shown
    assert "hunter2" not in refused(tmp_path, '[mcp.shop]\nurl = "https://me:hunter2@x"')


def test_secrets_come_from_the_environment_and_are_missed_by_name() -> None:
    headers = {"Authorization": "Bearer ${TOKEN}", "X-Plain": "$5"}
    assert expanded(headers, {"TOKEN": "s"}) == {"Authorization": "Bearer s", "X-Plain": "$5"}
    with pytest.raises(Unavailable, match="The variable TOKEN is not set"):
        expanded(headers, {})
