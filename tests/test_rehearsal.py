"""The rehearsal model does what its directives say, in their order, and says what it is."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.domain.messages import Message, Role, ToolCall, Usage
from perdure.models import FailureKind, ModelChain, ModelFailure, Piece, Prompt, ToolOffer
from perdure.models.rehearsal import REHEARSAL, extract
from perdure.models.script import Call, Step, fill, fill_arguments, parse

NOW = datetime(2026, 1, 1, tzinfo=UTC)

names = st.from_regex(r"[a-z][a-z0-9_]{0,12}", fullmatch=True).filter(
    lambda name: name not in ("say", "sleep", "fail")
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
calls = st.builds(
    Call, names, st.dictionaries(st.text(), values, max_size=3).map(lambda value: json.dumps(value))
)


class Conversation:
    """A turn as the session plays it: the model's calls are answered with given results."""

    def __init__(self, text: str) -> None:
        self.messages: list[Message] = []
        self.pieces: list[Piece] = []
        self.add(Role.USER, text)

    def add(self, role: Role, text: str, **fields: object) -> None:
        seq = len(self.messages) + 1
        message = {"id": f"m{seq}", "seq": seq, "turn": 1, "role": role, "text": text, "at": NOW}
        self.messages.append(Message.model_validate({**message, **fields}))

    def result(self, text: str) -> None:
        self.add(Role.TOOL, text, tool_call_id="c", tool_name="t")

    async def step(self, attempt: int = 1, offered: tuple[str, ...] = ()) -> tuple[str, list[Call]]:
        tools = [ToolOffer(name, "", {"type": "object"}) for name in offered]
        prompt = Prompt("", self.messages, tools, attempt)

        async def hear(piece: Piece) -> None:
            self.pieces.append(piece)

        answer = await ModelChain([REHEARSAL]).answer(prompt, hear)
        self.add(Role.ASSISTANT, answer.text, tool_calls=answer.tool_calls, raw=answer.raw)
        return answer.text, [Call(call.name, call.arguments) for call in answer.tool_calls]


@given(st.text())
def test_every_text_parses_to_the_same_steps_each_time(text: str) -> None:
    assert parse(text) == parse(text)


@given(st.lists(st.lists(calls, min_size=1, max_size=3), min_size=1, max_size=4))
def test_groups_of_calls_set_apart_by_a_rule_are_the_steps_in_order(
    groups: list[list[Call]],
) -> None:
    text = "\n---\n".join(
        "\n\n".join(f"/{call.name} {call.arguments}" for call in group) for group in groups
    )
    script = parse(text)
    assert script is not None
    assert [list(step.calls) for step in script.steps] == groups


@given(st.text(alphabet=st.characters(exclude_characters="/")))
def test_a_text_without_directives_is_no_script(text: str) -> None:
    assert parse(text) is None


def test_text_and_every_other_directive_end_a_step_and_blank_lines_do_not() -> None:
    script = parse(
        'intro\n/a {}\n\n/b {}\nand then\n/c\n/sleep 2\n/d {}\n/say done\n/e {"never": 1}'
    )
    assert script is not None
    assert script.steps == (
        Step(calls=(Call("a"), Call("b"))),
        Step(calls=(Call("c"),)),
        Step(calls=(Call("d"),), sleep=2.0),
        Step(say="done"),
    )


def test_modifiers_wait_for_the_next_step_that_is_made() -> None:
    script = parse("/a\n/sleep 1\n/fail rate_limit 1\n---\nsome text\n/sleep 0.5\n/fail timeout 2")
    assert script is not None
    kinds = (FailureKind.RATE_LIMIT, FailureKind.TIMEOUT, FailureKind.TIMEOUT)
    assert script.steps == (Step(calls=(Call("a"),)),)
    assert script.closing == Step(sleep=1.5, failures=kinds)


def test_a_sentence_that_begins_with_a_path_stays_a_sentence() -> None:
    assert parse("/etc is a folder\n/usr/bin too\n// and this\n/ this") is None
    script = parse("/read notes.txt", offered={"read"})
    assert script is not None
    assert script.steps[0].calls == (Call("read", "notes.txt"),)


@pytest.mark.parametrize(
    "line",
    [
        "/fail",
        "/fail nonsense 1",
        "/fail auth",
        "/fail auth x",
        "/fail auth 99999",
        "/sleep",
        "/sleep soon",
        "/sleep nan",
        "/sleep -1",
        "/sleep 1e12",
    ],
)
async def test_a_directive_that_cannot_be_read_is_said_and_nothing_is_called(line: str) -> None:
    text, called = await Conversation(f"/write {{}}\n{line}\n/say done").step()
    assert not called
    assert line in text


RESULTS = (
    '{"run_id": "r1", "n": 3, "hits": [{"path": "a.txt"}], "two words": "yes"}',
    "plain",
    "[1]",
)


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("{{1.run_id}}", "r1"),
        ("run {{1.run_id}}, {{1.n}} hits", "run r1, 3 hits"),
        ("{{1.hits.0.path}}", "a.txt"),
        ("{{1.hits}}", '[{"path": "a.txt"}]'),
        ("{{ 1.two words }}", "yes"),
        ("{{2}}", "plain"),
        ("{{1}}", RESULTS[0]),
        ("{{3.0}}", "1"),
        (
            "{{0}} {{4}} {{1.none}} {{1.hits.7}} {{2.x}}",
            "{{0}} {{4}} {{1.none}} {{1.hits.7}} {{2.x}}",
        ),
        ("{{x}} {{ }} {{1", "{{x}} {{ }} {{1"),
        (r"\{{1.run_id}} \\{{1.run_id}}", r"{{1.run_id}} \{{1.run_id}}"),
    ],
)
def test_a_reference_takes_a_field_or_stays_as_it_stands(text: str, filled: str) -> None:
    assert fill(text, RESULTS) == filled


@pytest.mark.parametrize(
    ("arguments", "filled"),
    [
        ('{"n": "{{1.n}}"}', {"n": 3}),
        ('{"n": "{{1.n}} times"}', {"n": "3 times"}),
        (
            '{"all": ["{{1.hits}}", {"id": "{{1.run_id}}"}]}',
            {"all": [[{"path": "a.txt"}], {"id": "r1"}]},
        ),
        ('{"text": "{{1}}"}', {"text": RESULTS[0]}),
        ('{"gone": "{{9.x}}"}', {"gone": "{{9.x}}"}),
        (r'{"task": "/say \{{1.x}}"}', {"task": "/say {{1.x}}"}),
        (r'{"task": "/say \\{{1.x}}"}', {"task": "/say {{1.x}}"}),
        (r'{"task": "/say \\\{{1.x}}"}', {"task": r"/say \{{1.x}}"}),
        (r'{"task": "a\n{{1.n}} \"b\""}', {"task": 'a\n3 "b"'}),
    ],
)
def test_references_in_arguments_are_filled_with_their_own_type(
    arguments: str, filled: object
) -> None:
    assert json.loads(fill_arguments(arguments, RESULTS)) == filled


@given(st.text(), st.lists(st.text(), max_size=3))
def test_arguments_that_are_no_json_are_passed_on_as_written(text: str, results: list[str]) -> None:
    broken = '{"{{1.x}}": ' + text
    assert fill_arguments(broken, results) == broken or json.loads(broken)


@given(st.dictionaries(st.text(), values), st.lists(st.text(), max_size=2))
def test_arguments_without_references_are_passed_on_to_the_letter(
    arguments: dict[str, object], results: list[str]
) -> None:
    written = json.dumps(arguments, indent=1).replace("{{", "{ {")
    assert fill_arguments(written, results) == written


@given(st.text(), values)
def test_what_is_escaped_once_reaches_a_child_as_it_was_written(text: str, value: object) -> None:
    mine = text.replace("\\", "").replace("{{", "") + "{{1.x}}"
    escaped = mine.replace("{{", r"\{{")
    assert fill(escaped, [json.dumps({"x": value})]) == mine


def test_a_result_nested_beyond_any_depth_is_left_alone() -> None:
    deep = "[" * 200_000
    assert fill("{{1.0}}", [deep]) == "{{1.0}}"
    assert fill_arguments('{"a": "{{1.0}}", "b": ' + deep, [deep]).endswith(deep)


async def test_a_turn_follows_its_script_to_the_answer() -> None:
    turn = Conversation(
        '/spawn {"a": 1}\n/ls\n---\n/read {"path": "{{2.0}}"}\n/say {{1.id}}: {{3}}'
    )
    assert await turn.step() == ("", [Call("spawn", '{"a": 1}'), Call("ls")])
    turn.result('{"id": "r7"}')
    turn.result('["b.txt"]')
    assert await turn.step() == ("", [Call("read", '{"path": "b.txt"}')])
    assert not turn.pieces
    turn.result("hello")
    assert await turn.step() == ("r7: hello", [])
    assert "".join(piece.text for piece in turn.pieces) == "r7: hello"
    assert len(turn.pieces) > 1


async def test_the_ids_of_calls_are_the_same_on_a_retry_and_differ_between_steps() -> None:
    async def ids() -> list[str]:
        turn = Conversation("/a\n/b\n---\n/a")
        await turn.step()
        turn.result("1")
        turn.result("2")
        await turn.step()
        return [call.id for message in turn.messages for call in message.tool_calls]

    once = await ids()
    assert once == await ids()
    assert len(set(once)) == 3


async def test_a_script_without_an_answer_ends_with_what_came_of_it() -> None:
    turn = Conversation("/read {}")
    await turn.step()
    turn.result("first line\nsecond line")
    text, called = await turn.step()
    assert not called
    assert "not a language model" in text
    assert "first line second line" in text


async def test_without_directives_it_extracts_and_says_that_it_is_no_language_model() -> None:
    text, called = await Conversation("What is the capital\n\nof France?").step()
    assert not called
    assert "not a language model" in text
    assert "What is the capital\nof France?" in text
    assert "Paris" not in text


async def test_it_reads_the_last_user_message_only() -> None:
    turn = Conversation("/read {}")
    await turn.step()
    turn.result("x")
    turn.add(Role.USER, "/say stop here, with {{1}}")
    assert await turn.step() == ("stop here, with {{1}}", [])


@pytest.mark.parametrize(
    ("kind", "retryable", "retry_after", "status"),
    [
        ("rate_limit", True, 1.0, "429"),
        ("server_error", True, None, "500"),
        ("auth", False, None, "401"),
        ("timeout", True, None, "timeout"),
    ],
)
async def test_a_step_fails_its_first_attempts_as_a_provider_would(
    kind: str, retryable: bool, retry_after: float | None, status: str
) -> None:
    for attempt in (1, 2):
        with pytest.raises(ModelFailure, match=status) as raised:
            await Conversation(f"/fail {kind} 2\n/say after all").step(attempt)
        assert raised.value.kind == kind
        assert raised.value.retryable is retryable
        assert raised.value.retry_after == retry_after
    assert await Conversation(f"/fail {kind} 2\n/say after all").step(3) == ("after all", [])


async def test_a_message_that_joins_without_directives_changes_nothing() -> None:
    turn = Conversation("/a {}\n---\n/b {}\n---\n/say {{1}} {{2}}")
    assert (await turn.step())[1] == [Call("a")]
    turn.result("one")
    turn.add(Role.USER, "hurry up", step=2)
    assert (await turn.step())[1] == [Call("b")]
    turn.result("two")
    assert (await turn.step())[0] == "one two"


async def test_a_message_that_joins_with_directives_is_followed_from_there() -> None:
    """References go on counting the results of the whole turn."""
    turn = Conversation("/a {}\n---\n/b {}\n/say never")
    assert (await turn.step())[1] == [Call("a")]
    turn.result("one")
    turn.add(Role.USER, "/c {}\n---\n/say {{1}} {{2}}", step=2)
    assert (await turn.step())[1] == [Call("c")]
    turn.result("two")
    assert (await turn.step())[0] == "one two"


async def test_a_sleeping_step_is_silent_and_can_be_cancelled() -> None:
    turn = Conversation("/sleep 600\n/say late")
    task = asyncio.ensure_future(turn.step())
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not turn.pieces


async def test_it_costs_nothing_and_its_tokens_are_counted_from_the_text() -> None:
    prompt = Prompt("12345678", [*Conversation("/say four").messages])
    answer = await ModelChain([REHEARSAL]).answer(prompt, _ignore)
    assert answer.usage == Usage(input_tokens=5, output_tokens=1, cost=0.0)
    assert (answer.model, answer.finish_reason) == ("rehearsal", "stop")


async def test_calls_are_counted_as_input_of_the_next_step() -> None:
    turn = Conversation("x")
    turn.add(Role.ASSISTANT, "", tool_calls=(ToolCall(id="1", name="read", arguments="{}{}{}{}"),))
    before = await ModelChain([REHEARSAL]).answer(Prompt("", turn.messages[:1]), _ignore)
    after = await ModelChain([REHEARSAL]).answer(Prompt("", turn.messages), _ignore)
    assert after.usage.input_tokens > before.usage.input_tokens


@given(st.text(), st.integers(2, 200))
def test_an_extract_never_exceeds_its_limit_and_tells_what_it_left_out(
    text: str, limit: int
) -> None:
    short = extract(text, limit)
    assert len(short) <= limit
    lines = "\n".join(line.strip() for line in text.split("\n") if line.strip())
    assert short == lines or (short.endswith("…") and lines.startswith(short[:-1]))


def test_a_rehearsal_loads_no_provider_library() -> None:
    code = "import sys, perdure.models; sys.exit('pydantic_ai' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


async def _ignore(_: Piece) -> None:
    pass
