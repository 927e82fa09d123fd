"""`perdure keys`: made, shown once, listed by pages, revoked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.cli import run
from perdure.api_keys import read_key


def keys(home: Path, *arguments: str) -> int:
    return run(["keys", *arguments, "--home", str(home)])


def told(home: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert keys(home, *arguments, "--json") == 0
    return json.loads(capsys.readouterr().out)


def test_a_key_is_shown_once_and_works_for_whom_it_was_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert keys(tmp_path, "create", "bot", "--scope", "chat", "--scope", "read") == 0
    shown = capsys.readouterr()
    text = read_key(shown.out.strip())
    assert text is not None
    assert "cannot be shown again" in shown.err
    assert keys(tmp_path, "list") == 0
    listed = capsys.readouterr().out
    assert text.id in listed
    assert "default" in listed
    assert text.secret not in listed
    every = told(tmp_path, capsys, "create", "ops", "--scope", "admin", "--all-tenants")
    assert every["tenant"] is None
    brief = told(
        tmp_path, capsys, "create", "ci", "--tenant", "acme", "--clearance", "INTERNAL",
        "--rate", "5", "--expires", "2h",
    )  # fmt: skip
    assert (brief["tenant"], brief["clearance"], brief["rate"]) == ("acme", "INTERNAL", 5)
    assert brief["expires_at"] > brief["created_at"]


def test_lists_are_paged_and_leave_out_what_is_revoked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = [told(tmp_path, capsys, "create", f"bot {number}") for number in range(3)]
    assert keys(tmp_path, "list", "--limit", "2") == 0
    assert "More: perdure keys list --offset 2" in capsys.readouterr().out
    rest = told(tmp_path, capsys, "list", "--offset", "2")
    assert [one["id"] for one in rest["keys"]] == [made[0]["id"]]
    revoked = told(tmp_path, capsys, "revoke", made[0]["id"])
    assert revoked["revoked_at"] is not None
    assert told(tmp_path, capsys, "list")["total"] == 2
    assert told(tmp_path, capsys, "list", "--all")["total"] == 3


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("create", "bot", "--expires", "soon"), 2),
        (("create", "bot", "--expires", "1999-01-01"), 2),
        (("create", "bot", "--scope", "everything"), 2),
        (("create", "bot", "--tenant", "a:b"), 2),
        (("create", "bot", "--tenant", "a", "--all-tenants"), 2),
        (("revoke", "nobody"), 3),
    ],
)
def test_what_cannot_be_is_told_with_its_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: int
) -> None:
    assert keys(tmp_path, *arguments) == code
    assert capsys.readouterr().out == ""


def test_a_tenant_that_is_none_is_called_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for word in ("a:b", "a~b", ""):
        assert keys(tmp_path, "create", "bot", "--tenant", word) == 2
        assert f"{word!r} is no tenant." in capsys.readouterr().err
