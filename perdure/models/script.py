"""The rehearsal model's script: directives in a message, as steps of a turn.

Invariant: pure and total. Every text parses, the same text always to the same steps, and a
reference either takes a value of a tool result or is left as it stands.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.models.failure import FailureKind

#: The failures that can be rehearsed.
FAILURES = {
    "rate_limit": FailureKind.RATE_LIMIT,
    "server_error": FailureKind.SERVER_ERROR,
    "auth": FailureKind.AUTH,
    "timeout": FailureKind.TIMEOUT,
}
#: The longest a step may be told to sleep, in seconds: a day.
LONGEST_SLEEP = 86_400.0
#: How often a step may be told to fail; every configured number of attempts is below it.
MOST_FAILURES = 1_000

_DIRECTIVE = re.compile(r"/([A-Za-z_][A-Za-z0-9_.-]*)(?:\s+(.*))?", re.DOTALL)
# Backslashes, then `{{`, then the rest of a reference if it is one.
_REFERENCE = re.compile(r"(\\*)\{\{(?:\s*([0-9]{1,6})((?:\.[^.{}]+)*)\s*\}\})?")
# An odd number of backslashes before `{{`: no JSON, so it can only be our own escape.
_BARE_ESCAPE = re.compile(r"(?<!\\)\\(?:\\\\)*(?=\{\{)")


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call as written: `arguments` is the text after the name, JSON or not."""

    name: str
    arguments: str = "{}"


@dataclass(frozen=True, slots=True)
class Step:
    """One model call of the script: tool calls, or the final answer `say`, or neither.

    It takes `sleep` seconds, after its first attempts have failed by `failures`, in order.
    """

    calls: tuple[Call, ...] = ()
    say: str | None = None
    sleep: float = 0.0
    failures: tuple[FailureKind, ...] = ()


@dataclass(frozen=True, slots=True)
class Script:
    """The steps of a turn. `closing` is made when they are over and none of them was an answer.

    With a `mistake`, a sentence about the first directive that cannot be read, no step is to be
    made: half a script is worse than none.
    """

    steps: tuple[Step, ...] = ()
    closing: Step = Step()
    mistake: str = ""

    def step(self, index: int) -> Step:
        """The `index`-th step of the turn, from 0."""
        return self.steps[index] if index < len(self.steps) else self.closing


def parse(text: str, offered: Collection[str] = ()) -> Script | None:
    """The script in `text`, or None if no line of it is a directive.

    A line `/name …` calls a tool when what follows is nothing, begins with `{`, or the tool is
    `offered`: `/etc is a folder` stays a sentence. Neighbouring calls are one step; `---`, a line
    of text and the other directives end it, blank lines do not. `/say` ends the script.
    """
    script = _Builder()
    for line in text.split("\n"):
        line = line.strip()
        if not line:
            continue
        name, rest = _directive(line, offered)
        if name == "say":
            script.say(rest)
            break
        if name == "sleep":
            script.sleep(rest)
        elif name == "fail":
            script.fail(rest)
        elif name:
            script.call(Call(name, rest or "{}"))
        else:
            script.end_step()
    return script.build()


def fill(text: str, results: Sequence[str]) -> str:
    """`text` with each reference replaced by the text of its value.

    `{{N}}` is the N-th of `results`, from 1, as it is; `{{N.path}}` a field of it as JSON, where
    the path's keys and list indexes are set apart by dots. A value that is no string stands as
    JSON. One backslash before `{{` is taken away, and the reference left.
    """

    def value(match: re.Match[str]) -> str:
        if match[1]:
            return match[0][1:]
        found, value = _look_up(match, results)
        if not found:
            return match[0]
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    return _REFERENCE.sub(value, text)


def fill_arguments(arguments: str, results: Sequence[str]) -> str:
    """Tool arguments with the references in their JSON strings filled in.

    A string that is nothing but one reference takes the value's own JSON type. Arguments without
    references, and those that are not JSON, are returned as they are written.
    """
    if "{{" not in arguments:
        return arguments
    try:
        written = json.loads(_BARE_ESCAPE.sub(r"\g<0>\\", arguments), parse_constant=_refuse)
        filled = _fill_value(written, results)
        if filled == written:
            return arguments
        return json.dumps(filled, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        return arguments


class _Builder:
    """Collects directives into steps; modifiers wait for the next step that is made."""

    def __init__(self) -> None:
        self._steps: list[Step] = []
        self._calls: list[Call] = []
        self._sleep = 0.0
        self._failures: list[FailureKind] = []
        self._mistake = ""
        self._found = False

    def call(self, call: Call) -> None:
        self._found = True
        self._calls.append(call)

    def say(self, text: str) -> None:
        self._found = True
        self.end_step()
        self._add(Step(say=text))

    def sleep(self, rest: str) -> None:
        self._found = True
        self.end_step()
        try:
            seconds = float(rest)
        except ValueError:
            seconds = -1.0
        if 0 <= seconds <= LONGEST_SLEEP:
            self._sleep = min(self._sleep + seconds, LONGEST_SLEEP)
        else:
            self._complain(
                f"/sleep {rest}", f"/sleep S, with S from 0 to {LONGEST_SLEEP:g} seconds"
            )

    def fail(self, rest: str) -> None:
        self._found = True
        self.end_step()
        kind, _, times = rest.partition(" ")
        times = times.strip()
        if kind in FAILURES and re.fullmatch("[0-9]{1,4}", times) and int(times) <= MOST_FAILURES:
            self._failures += [FAILURES[kind]] * int(times)
        else:
            kinds = ", ".join(FAILURES)
            self._complain(
                f"/fail {rest}",
                f"/fail KIND N, with KIND one of {kinds} and N up to {MOST_FAILURES}",
            )

    def end_step(self) -> None:
        if self._calls:
            self._add(Step(calls=tuple(self._calls)))
            self._calls = []

    def build(self) -> Script | None:
        self.end_step()
        if not self._found:
            return None
        return Script(tuple(self._steps), self._modified(Step()), self._mistake)

    def _add(self, step: Step) -> None:
        self._steps.append(self._modified(step))
        self._sleep, self._failures = 0.0, []

    def _modified(self, step: Step) -> Step:
        return Step(step.calls, step.say, self._sleep, tuple(self._failures))

    def _complain(self, written: str, wanted: str) -> None:
        self._mistake = self._mistake or f"cannot read `{written[:80]}`; write {wanted}"


def _directive(line: str, offered: Collection[str]) -> tuple[str, str]:
    match = _DIRECTIVE.fullmatch(line)
    if match is None:
        return "", ""
    name, rest = match[1], match[2] or ""
    known = name in ("say", "sleep", "fail") or name in offered
    return (name, rest) if known or not rest or rest.startswith("{") else ("", "")


def _fill_value(value: Any, results: Sequence[str]) -> Any:
    if isinstance(value, dict):
        return {key: _fill_value(item, results) for key, item in value.items()}
    if isinstance(value, list):
        return [_fill_value(item, results) for item in value]
    if not isinstance(value, str):
        return value
    whole = _REFERENCE.fullmatch(value)
    if whole and not whole[1]:
        found, result = _look_up(whole, results)
        return result if found else value
    return fill(value, results)


def _look_up(match: re.Match[str], results: Sequence[str]) -> tuple[bool, Any]:
    """Whether the matched reference has a value, and the value."""
    number = int(match[2] or 0)
    if not 1 <= number <= len(results):
        return False, None
    result = results[number - 1]
    if not match[3]:
        return True, result
    try:
        value: Any = json.loads(result)
    except (ValueError, RecursionError):
        return False, None
    for key in match[3][1:].split("."):
        key = key.strip()
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and re.fullmatch("[0-9]{1,9}", key) and int(key) < len(value):
            value = value[int(key)]
        else:
            return False, None
    return True, value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
