"""Calls and results: each real result is kept once, directly behind its call, however they came."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.context import Groups, assemble
from perdure.context.groups import NO_RESULT
from perdure.domain.messages import Message, Role, ToolCall
from tests.support.dag import BEGAN


def user(seq: int, text: str = "go", turn: int = 1) -> Message:
    return Message(id=f"m{seq}", seq=seq, turn=turn, role=Role.USER, text=text, tokens=5, at=BEGAN)


def answer(seq: int, *calls: str, turn: int = 1, step: int = 1, text: str = "") -> Message:
    return Message(
        id=f"m{seq}",
        seq=seq,
        turn=turn,
        step=step,
        role=Role.ASSISTANT,
        text=text,
        tool_calls=tuple(ToolCall(id=name, name="look") for name in calls),
        tokens=7,
        at=BEGAN,
    )


def result(seq: int, call: str, text: str = "found", turn: int = 1, step: int = 1) -> Message:
    return Message(
        id=f"m{seq}",
        seq=seq,
        turn=turn,
        step=step,
        role=Role.TOOL,
        text=text,
        tool_call_id=call,
        tool_name="look",
        tokens=11,
        at=BEGAN,
    )


def assembled(*messages: Message) -> list[str]:
    """The texts of what is assembled, calls by their ids."""
    return [
        message.text or ",".join(call.id for call in message.tool_calls)
        for message in assemble(messages, 10**6).messages
    ]


def test_results_in_another_order_than_their_calls_are_kept() -> None:
    # lossless-claw #992: call A, call B, result B, result A, of two answers and of one.
    assert assembled(
        user(1),
        answer(2, "a", step=1),
        answer(3, "b", step=2),
        result(4, "b", "of b", step=2),
        result(5, "a", "of a", step=1),
    ) == ["go", "a", "of a", "b", "of b"]
    assert assembled(
        user(1), answer(2, "a", "b"), result(3, "b", "of b"), result(4, "a", "of a")
    ) == [
        "go",
        "a,b",
        "of a",
        "of b",
    ]


def test_a_result_before_its_call_is_kept() -> None:
    # lossless-claw #1147.
    assert assembled(user(1), result(2, "a", "early"), answer(3, "a")) == ["go", "a", "early"]


def test_an_id_that_comes_in_three_turns_keeps_its_three_results() -> None:
    # lossless-claw PR #1062.
    messages = []
    for turn in (1, 2, 3):
        messages += [
            user(turn * 10, f"turn {turn}", turn),
            answer(turn * 10 + 1, "call_0", turn=turn),
            result(turn * 10 + 2, "call_0", f"of {turn}", turn),
        ]
    kept = assembled(*messages)
    assert [text for text in kept if text.startswith("of")] == ["of 1", "of 2", "of 3"]


def test_an_id_that_comes_twice_in_one_answer_keeps_both_results_in_their_places() -> None:
    assert assembled(
        user(1), answer(2, "", ""), result(4, "", "second"), result(3, "", "first")
    ) == ["go", ",", "first", "second"]


def test_equal_rows_are_all_kept() -> None:
    # lossless-claw PR #755 and #1088: twenty equal ones in a second, and one new after a thousand.
    rows = [user(seq, "same") for seq in range(1, 21)]
    assert assembled(*rows) == ["same"] * 20
    rows = [user(seq, "same") for seq in range(1, 1_001)]
    assert assembled(*rows, user(1_001, "new"))[-1] == "new"


def test_a_real_result_goes_before_a_placeholder_and_one_result_before_its_repeats() -> None:
    assert assembled(user(1), answer(2, "a")) == ["go", "a", NO_RESULT]
    made = answer(2, "a")
    assert assembled(user(1), made, result(3, "a", NO_RESULT), result(4, "a", "real")) == [
        "go",
        "a",
        "real",
    ]
    assert assembled(user(1), made, result(3, "a", "real"), result(4, "a", NO_RESULT)) == [
        "go",
        "a",
        "real",
    ]
    assert assembled(user(1), made, result(3, "a", "first"), result(4, "a", "again")) == [
        "go",
        "a",
        "first",
    ]


def test_results_without_a_call_and_blank_messages_are_left_out() -> None:
    assert assembled(user(1), result(2, "z"), answer(3, text=" \n"), answer(4, text="hi")) == [
        "go",
        "hi",
    ]


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    """Turns of steps whose calls have repeated, missing, foreign and early results."""
    found: list[Message] = []
    seq = 0
    for turn in range(1, draw(st.integers(1, 5)) + 1):
        seq += 1
        found.append(user(seq, f"turn {turn}", turn))
        for step in range(1, draw(st.integers(0, 3)) + 1):
            calls = draw(st.lists(st.sampled_from("abc"), max_size=3))
            names = draw(st.lists(st.sampled_from("abcd"), max_size=4))
            texts = [draw(st.sampled_from(["x", "y", NO_RESULT])) for _ in names]
            before = draw(st.integers(0, len(names)))
            for index in range(len(names) + 1):
                seq += 1
                if index == before:
                    text = draw(st.sampled_from(["", " ", "said"]))
                    found.append(answer(seq, *calls, turn=turn, step=step, text=text))
                    seq += 1
                if index < len(names):
                    found.append(result(seq, names[index], texts[index], turn, step))
    return found


@settings(deadline=None)
@given(histories(), st.integers(0, 500), st.data())
def test_no_call_and_no_result_is_orphaned_at_any_cut(
    history: list[Message], budget: int, data: st.DataObject
) -> None:
    # lossless-claw #861, langchain #38352: also where reading begins in the middle.
    history = history[data.draw(st.integers(0, len(history) - 1)) :]
    messages = assemble(history, budget).messages
    position = 0
    while position < len(messages):
        head = messages[position]
        assert head.role is not Role.TOOL
        assert head.text.strip() or head.tool_calls
        after = messages[position + 1 : position + 1 + len(head.tool_calls)]
        assert [one.tool_call_id for one in after] == [call.id for call in head.tool_calls]
        assert all((one.turn, one.step) == (head.turn, head.step) for one in after)
        position += 1 + len(after)
    if messages:
        assert messages[0].role is Role.USER
    ids = [message.id for message in messages]
    assert len(ids) == len(set(ids))


@settings(deadline=None)
@given(histories())
def test_every_call_with_a_real_result_has_one(history: list[Message]) -> None:
    results: dict[tuple[int, int, str | None], int] = {}
    for one in history:
        if one.role is Role.TOOL and one.text != NO_RESULT:
            key = (one.turn, one.step, one.tool_call_id)
            results[key] = results.get(key, 0) + 1
    for head in history:
        for name in {call.id for call in head.tool_calls}:
            kept = [
                one
                for one in assemble(history, 10**6).messages
                if one.tool_call_id == name
                and (one.turn, one.step) == (head.turn, head.step)
                and one.text != NO_RESULT
            ]
            calls = [call.id for call in head.tool_calls].count(name)
            assert len(kept) == min(calls, results.get((head.turn, head.step, name), 0))


@settings(deadline=None)
@given(histories(), st.integers(1, 7), st.integers(0, 200), st.integers(0, 6))
def test_what_is_paired_bit_by_bit_is_what_is_paired_at_once(
    history: list[Message], size: int, budget: int, turn: int
) -> None:
    groups = Groups()
    for first in range(0, len(history), size):
        groups.append(history[first : first + size])
    whole = Groups(history)
    assert groups.messages(0) == whole.messages(0)
    assert groups.tokens == whole.tokens == sum(one.tokens for one in whole.messages(0))
    for first in range(len(whole) + 1):
        assert whole.cost(first) == sum(one.tokens for one in whole.messages(first))
    # What a trim leaves is the newest part, with all that the budget and the turn need.
    groups.trim(budget, turn)
    left = groups.messages(0)
    assert left == whole.messages(0)[len(whole.messages(0)) - len(left) :]
    assert groups.tokens == sum(one.tokens for one in left)
    assert groups.tokens >= min(budget, whole.tokens)
    assert [m for m in left if m.turn >= turn] == [m for m in whole.messages(0) if m.turn >= turn]
    assert assemble(left, budget).messages == assemble(history, budget).messages
    late = user(10_000, "late", 10_000)
    groups.append([late])
    assert groups.messages(len(groups) - 1) == [late]
    assert groups.last_user == len(groups) - 1


@settings(deadline=None)
@given(histories(), st.integers(-5, 300), st.data())
def test_the_longest_run_that_fits_is_found(
    history: list[Message], room: int, data: st.DataObject
) -> None:
    groups = Groups(history)
    groups.trim(data.draw(st.integers(0, 300)), 10**6)
    last = data.draw(st.integers(0, len(groups)))
    first = data.draw(st.integers(0, last))
    fits = [i for i in range(first, last + 1) if groups.cost(i, last) <= max(room, 0)]
    assert groups.fitting(room, first, last) == (fits[0] if room >= 0 else last)
