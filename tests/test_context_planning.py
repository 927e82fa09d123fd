"""What is summarised next: never below the threshold, never the tail, never a call without its
result; few calls, shallow trees.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.context import ContextParameters, history_budget
from perdure.context.items import Item, joints, tail_start
from perdure.context.planning import LEAST_SOURCE, Pass, Rest, plan, threshold_tokens
from perdure.context.presentation import SUMMARY_OVERHEAD
from perdure.domain.messages import Role

DEFAULTS = ContextParameters()
#: A window of 200,000 tokens, less the answer's share.
BUDGET = 180_000


def message(seq: int, tokens: int, role: Role = Role.USER, **fields: object) -> Item:
    return Item(f"m{seq}", seq, seq, tokens, role=role, turn=seq, **fields)  # type: ignore[arg-type]


def summary(seq: int, depth: int = 0, tokens: int = 2_000, messages: int = 10) -> Item:
    return Item(f"s{seq}", seq, seq + messages - 1, tokens, depth=depth, messages=messages)


def planned(
    items: Sequence[Item],
    budget: int = BUDGET,
    parameters: ContextParameters = DEFAULTS,
    exhausted: Sequence[str] = (),
) -> Pass | Rest:
    return plan(items, budget, parameters, session_key="a:b", epoch=0, exhausted=exhausted)


@st.composite
def contexts(draw: st.DrawFn) -> list[Item]:
    """Summaries and exchanges in any mixture, with results before, behind and without calls."""
    items: list[Item] = []
    seq = 1
    for turn in range(1, draw(st.integers(1, 30)) + 1):
        size = draw(st.sampled_from([0, 1, 50, 500, 3_000, 30_000]))
        kind = draw(st.sampled_from(["summary", "turn", "turn", "turn"]))
        if kind == "summary":
            node = summary(seq, draw(st.integers(0, 5)), draw(st.integers(80, 3_000)))
            items.append(node)
            seq = node.last_seq + 1
            continue
        calls = tuple(draw(st.lists(st.sampled_from("abc"), max_size=3)))
        parts = [
            Item("", 0, 0, size, role=Role.USER, turn=turn),
            Item("", 0, 0, size, role=Role.ASSISTANT, turn=turn, step=1, calls=calls),
            *(
                Item("", 0, 0, size, role=Role.TOOL, turn=turn, step=1, answers=name)
                for name in draw(st.lists(st.sampled_from("abcd"), max_size=4))
            ),
        ]
        for part in draw(st.permutations(parts)):
            items.append(
                Item(
                    f"m{seq}",
                    seq,
                    seq,
                    part.tokens,
                    role=part.role,
                    turn=turn,
                    step=part.step,
                    calls=part.calls,
                    answers=part.answers,
                )
            )
            seq += 1
    return items


budgets = st.sampled_from([900, 5_000, 30_000, 120_000])


@settings(deadline=None)
@given(contexts(), budgets)
def test_a_pass_is_contiguous_outside_the_tail_and_never_parts_a_call_from_its_result(
    items: list[Item], budget: int
) -> None:
    made = planned(items, budget)
    if isinstance(made, Rest):
        return
    index = next(i for i, item in enumerate(items) if item.id == made.sources[0])
    sources = items[index : index + len(made.sources)]
    assert tuple(item.id for item in sources) == made.sources
    assert (sources[0].first_seq, sources[-1].last_seq) == (made.first_seq, made.last_seq)
    start = tail_start(items, DEFAULTS.fresh_tail, budget // 2)
    assert index + len(sources) <= start
    assert made.source_tokens == sum(item.tokens for item in sources) >= LEAST_SOURCE
    if made.depth == 0:
        assert all(item.is_raw for item in sources)
        assert {index, index + len(sources)} <= set(joints(items))
    else:
        assert len({item.depth for item in sources}) == 1
    assert 0 < made.target < made.source_tokens
    assert made.most_tokens < made.source_tokens


@settings(deadline=None)
@given(contexts(), budgets)
def test_nothing_is_planned_at_or_under_the_threshold(items: list[Item], budget: int) -> None:
    total = sum(item.tokens for item in items)
    exact = ContextParameters(threshold=1.0)
    assert planned(items, max(1, total), exact) is Rest.FITS or total == 0
    assert (planned(items, budget) is Rest.FITS) == (total <= threshold_tokens(budget, DEFAULTS))


@settings(deadline=None)
@given(contexts(), budgets)
def test_a_sweep_in_which_nothing_succeeds_ends_and_tries_nothing_twice(
    items: list[Item], budget: int
) -> None:
    tried: set[str] = set()
    for _ in range(1_000):
        made = planned(items, budget, exhausted=tuple(tried))
        if isinstance(made, Rest):
            assert planned(items, budget, exhausted=tuple(tried)) is made
            return
        assert made.id not in tried
        tried.add(made.id)
    raise AssertionError("it did not end")


@settings(deadline=None)
@given(contexts())
def test_the_tail_has_the_newest_user_message_and_all_behind_it(items: list[Item]) -> None:
    start = tail_start(items, 3, 10**9)
    behind = max((i + 1 for i, item in enumerate(items) if not item.is_raw), default=0)
    users = [i for i, item in enumerate(items) if item.role is Role.USER and i >= behind]
    assert start in joints(items)
    assert start <= max(behind, len(items) - 3)
    assert all(start <= user for user in users[-1:])
    assert all(item.is_raw for item in items[start:])


def test_the_oldest_leaf_comes_first_and_is_full() -> None:
    items = [message(seq, 1_000) for seq in range(1, 201)]
    made = planned(items)
    assert isinstance(made, Pass)
    assert (made.depth, made.first_seq, made.last_seq, made.source_tokens) == (0, 1, 20, 20_000)
    assert made.target == 2_400


def test_eight_leaves_then_four_nodes_of_a_depth_are_condensed_shallowest_first() -> None:
    tail = [message(1_000, 134_000)]
    leaves = [summary(seq * 10) for seq in range(50, 59)]
    nodes = [summary(seq * 10, depth=1) for seq in range(40, 44)]
    made = planned([*nodes, *leaves, *tail])
    assert isinstance(made, Pass)
    assert (made.depth, len(made.sources), made.first_seq) == (1, 8, 500)
    made = planned([*nodes, *leaves[:7], *tail])
    assert isinstance(made, Pass)
    assert (made.depth, len(made.sources), made.first_seq) == (2, 4, 400)
    assert made.target == 2_000


def test_fewer_neighbours_are_condensed_only_under_pressure() -> None:
    items = [summary(10, depth=1), summary(20, depth=1), message(1_000, 133_000)]
    made = planned(items)
    assert isinstance(made, Pass)
    assert (made.depth, len(made.sources)) == (2, 2)
    # A small leaf that can still be had goes before.
    made = planned([*items[:2], message(500, 3_000), message(1_000, 130_100)])
    assert isinstance(made, Pass)
    assert (made.depth, made.first_seq) == (0, 500)
    # No pressure brings a context under the threshold whose tail alone is over it.
    assert planned([*items[:2], message(1_000, 136_000)]) is Rest.EXHAUSTED


def test_the_deepest_nodes_are_condensed_without_growing_deeper() -> None:
    items = [*(summary(seq * 10, depth=5) for seq in range(1, 5)), message(1_000, 130_000)]
    made = planned(items)
    assert isinstance(made, Pass)
    assert (made.depth, len(made.sources)) == (5, 4)


def test_a_message_longer_than_a_leaf_is_summarised_alone() -> None:
    made = planned([message(1, 500), message(2, 90_000), message(3, 60_000)])
    assert isinstance(made, Pass)
    assert made.sources == ("m1",)
    made = planned([message(1, 500), message(2, 90_000), message(3, 60_000)], exhausted=(made.id,))
    assert isinstance(made, Pass)
    assert made.sources == ("m2",)
    # Too little before it is taken along: nothing would ever take it otherwise.
    made = planned([message(1, 50), message(2, 90_000), message(3, 60_000)])
    assert isinstance(made, Pass)
    assert made.sources == ("m1", "m2")


def test_a_call_of_the_newest_turn_without_its_result_is_not_summarised() -> None:
    waiting = message(1, 30_000, Role.ASSISTANT, calls=("a",))
    items = [waiting, *(message(seq, 15_000) for seq in range(2, 12))]
    items = [
        Item(i.id, i.first_seq, i.last_seq, i.tokens, role=i.role, turn=1, calls=i.calls)
        for i in items
    ]
    assert planned(items) is Rest.EXHAUSTED
    answered = Item("m12", 12, 12, 10, role=Role.TOOL, turn=1, answers="a")
    made = planned([items[0], answered, *items[1:]])
    assert isinstance(made, Pass)
    assert made.sources == ("m1", "m12")


def test_raw_messages_are_counted_once() -> None:
    # lossless-claw #1063: 100,000 tokens, 60,000 of them raw, under a threshold of 150,000.
    items = [summary(seq * 10, tokens=4_000) for seq in range(1, 11)]
    items += [message(seq, 1_000) for seq in range(200, 260)]
    assert planned(items, 200_000) is Rest.FITS


@pytest.mark.parametrize(("window", "reserved"), [(100_000, 93_000), (8_000, 93_000), (1, 0)])
def test_instructions_that_fill_the_window_leave_a_target(window: int, reserved: int) -> None:
    # lossless-claw #1085: a host prompt of 93,000 tokens made the target 1.
    budget = history_budget(window, reserved)
    assert budget >= max(1, window // 10)
    items = [message(seq, 500) for seq in range(1, 100)]
    tried: list[str] = []
    while isinstance(made := planned(items, budget, exhausted=tried), Pass):
        assert made.target > 0
        tried.append(made.id)
    assert len(tried) < 1_000


def test_no_chunk_of_500_tokens_becomes_a_summary_of_2000() -> None:
    # hermes-agent #23811.
    made = planned([message(1, 500), message(2, 134_900)])
    assert isinstance(made, Pass)
    assert made.target <= 250
    assert made.most_tokens < 500


def chat(source: random.Random, position: int) -> int:
    return min(3_000, int(source.lognormvariate(4.0, 1.0))) + 7


def agent(source: random.Random, position: int) -> int:
    return min(14_000, int(source.lognormvariate(5.5, 1.6))) + 7


def tool_heavy(source: random.Random, position: int) -> int:
    return min(14_000, int(source.lognormvariate(7.5, 1.2))) + 7


@pytest.mark.parametrize(
    ("size", "messages", "messages_a_turn"),
    [(chat, 100_000, 2), (agent, 100_000, 8), (tool_heavy, 20_000, 4)],
    ids=["chat", "agent", "tools"],
)
def test_a_hundred_thousand_messages_cost_little_and_stay_shallow(
    size: Callable[[random.Random, int], int], messages: int, messages_a_turn: int
) -> None:
    source = random.Random(1)
    items: list[Item] = []
    raw = read = calls = deepest = largest = 0
    limit = threshold_tokens(BUDGET, DEFAULTS)
    for first in range(1, messages + 1, messages_a_turn):
        turn = [
            Item(
                f"m{seq}",
                seq,
                seq,
                size(source, seq),
                turn=first,
                role=Role.ASSISTANT if seq > first else Role.USER,
            )
            for seq in range(first, first + messages_a_turn)
        ]
        items += turn
        raw += sum(item.tokens for item in turn)
        largest = max(largest, sum(item.tokens for item in turn))
        assert sum(item.tokens for item in items) <= limit + largest
        for _ in range(DEFAULTS.sweep_passes):
            made = planned(items)
            if isinstance(made, Rest):
                break
            calls += 1
            read += made.source_tokens
            deepest = max(deepest, made.depth)
            written = int(made.target * source.uniform(0.6, 1.2)) + SUMMARY_OVERHEAD
            at = next(i for i, item in enumerate(items) if item.id == made.sources[0])
            items[at : at + len(made.sources)] = [
                Item(
                    made.id,
                    made.first_seq,
                    made.last_seq,
                    min(made.most_tokens, written),
                    depth=made.depth,
                    messages=made.messages,
                )
            ]
    assert sum(item.messages for item in items) == messages
    assert read <= 1.25 * raw
    assert deepest <= 5
    assert calls <= raw / 10_000


def test_parameters_shrink_with_the_budget_and_the_summarisers_window() -> None:
    assert DEFAULTS.fitted(BUDGET) == DEFAULTS
    assert DEFAULTS.fitted(100_000, 40_000) == DEFAULTS
    small = DEFAULTS.fitted(6_000)
    assert (small.leaf_chunk_tokens, small.leaf_target_max) == (1_200, 150)
    assert small.fitted(6_000) == small
    assert DEFAULTS.fitted(BUDGET, 8_000).leaf_chunk_tokens == 4_000
