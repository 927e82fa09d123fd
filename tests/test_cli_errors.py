"""What goes wrong on purpose is one line and one exit code, for people and for scripts."""

from __future__ import annotations

import json

import pytest

from gateway.cli import run
from gateway.cli.errors import refuse
from perdure.domain.errors import Code, Refusal

EXPECTED = {
    Code.INVALID_ARGUMENT: 2,
    Code.NOT_FOUND: 3,
    Code.UNAUTHENTICATED: 4,
    Code.DENIED: 4,
    Code.LIMIT_EXCEEDED: 4,
    Code.CONFLICT: 4,
    Code.RATE_LIMITED: 4,
    Code.UNAVAILABLE: 5,
    Code.TIMEOUT: 124,
    Code.DEADLOCK: 1,
    Code.APPROVAL_REQUIRED: 1,
}


@pytest.mark.parametrize("code", list(Code))
def test_each_code_has_its_exit_code(code: Code, capsys: pytest.CaptureFixture[str]) -> None:
    refusal = Refusal(code=code, message="It is so.", hint="Do that.")
    assert refuse(refusal, as_json=False) == EXPECTED[code]
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "error: It is so. Do that.\n")

    assert refuse(refusal, as_json=True) == EXPECTED[code]
    told = capsys.readouterr()
    assert told.err == ""
    assert told.out.count("\n") == 1
    assert json.loads(told.out) == {
        "error": {"code": code.value, "message": "It is so.", "hint": "Do that."}
    }


def test_an_unknown_command_is_told_with_the_nearest_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["dwon"]) == 2
    assert "'down'" in capsys.readouterr().err
    assert run(["dwon", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "invalid_argument"


def test_json_after_the_double_dash_is_not_the_option(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["dwon", "--", "--json"]) == 2
    assert capsys.readouterr().out == ""


def test_without_a_command_there_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    assert "down" in capsys.readouterr().out
