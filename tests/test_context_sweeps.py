"""Sweeps over whole conversations, with summarisers that do their worst: nothing is lost, nothing
grows without bound, nothing is tried for ever.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.context import ContextParameters, assemble_view
from perdure.context.items import tail_start
from perdure.context.planning import Pass, Rest
from tests.support.dag import (
    ADVERSARIES,
    Summariser,
    Talk,
    breaking_out,
    doubling,
    echoing,
    extracting,
    failing,
)

#: Small numbers, so that short talks have many depths.
SMALL = ContextParameters(fresh_tail=4, leaf_fan_in=2, condensed_fan_in=2)
BUDGET = 6_000
WORDS = "the quick brown fox jumps over the lazy dog and runs into the dark green wood "

turns = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 80), st.lists(st.integers(0, 60), max_size=3)),
    min_size=1,
    max_size=14,
)


def says(talk: Talk, size: int, answer: int, results: list[int]) -> None:
    talk.say("ask " + WORDS * size, "say " + WORDS * answer, [WORDS * n for n in results])


def in_one_place(talk: Talk) -> None:
    """Every message is raw in the context, or under exactly one summary of it."""
    places: Counter[str] = Counter()
    for item in talk.items():
        if item.is_raw:
            places[item.id] += 1
        else:
            places.update(message.id for message in talk.expand(item.id))
    assert places == Counter(message.id for message in talk.messages)


@settings(max_examples=40, deadline=None)
@given(turns, st.lists(st.sampled_from(ADVERSARIES), min_size=1, max_size=4), st.data())
def test_every_message_is_in_one_place_whatever_the_summarisers_do(
    spoken: list[tuple[int, int, list[int]]], summarisers: list[Summariser], data: st.DataObject
) -> None:
    talk = Talk(BUDGET, SMALL)
    for index, turn in enumerate(spoken):
        says(talk, *turn)
        match data.draw(st.sampled_from(["sweep", "one pass", "crash", "none"])):
            case "sweep":
                talk.sweep(summarisers[index % len(summarisers)])
            case "one pass":
                talk.sweep(summarisers[index % len(summarisers)], passes=1)
            case "crash":
                # A process that dies between the model and the store; the next one begins anew.
                made = talk.plan()
                if isinstance(made, Pass):
                    talk.write(made, summarisers[0])
            case _:
                pass
        in_one_place(talk)
    assert talk.sweep(summarisers[0]) is not None
    in_one_place(talk)


@settings(max_examples=40, deadline=None)
@given(turns, st.sampled_from(ADVERSARIES))
def test_a_context_stays_under_its_threshold_unless_the_tail_leaves_no_room(
    spoken: list[tuple[int, int, list[int]]], summariser: Summariser
) -> None:
    talk = Talk(BUDGET, SMALL)
    for turn in spoken:
        says(talk, *turn)
        rest = talk.sweep(summariser)
        items = talk.items()
        assert (rest is Rest.FITS) == (talk.tokens <= talk.threshold)
        if rest is Rest.EXHAUSTED:
            start = tail_start(items, SMALL.fresh_tail, BUDGET // 2)
            tail = sum(item.tokens for item in items[start:])
            # One summary of each depth and a little that is too little to be summarised.
            least = sum(item.tokens for item in items[:start])
            assert tail > talk.threshold or least < 7 * 1_200


@settings(max_examples=30, deadline=None)
@given(turns, st.sampled_from(ADVERSARIES))
def test_no_summary_is_as_large_as_its_source(
    spoken: list[tuple[int, int, list[int]]], summariser: Summariser
) -> None:
    talk = Talk(BUDGET, SMALL)
    for turn in spoken:
        says(talk, *turn)
        talk.sweep(summariser)
    for summary in talk.published.values():
        assert summary.tokens < summary.source_tokens
        assert summary.text.strip()


@settings(max_examples=20, deadline=None)
@given(turns, st.integers(1, 3))
def test_publishing_again_changes_nothing(
    spoken: list[tuple[int, int, list[int]]], times: int
) -> None:
    talk = Talk(BUDGET, SMALL)
    for turn in spoken:
        says(talk, *turn)
        while isinstance(made := talk.plan(), Pass):
            written = talk.write(made, extracting)
            if written is None:
                talk.exhausted.add(made.id)
                continue
            talk.publish(made, *written)
            before = dict(talk.published)
            for _ in range(times):
                talk.publish(made, *written)
            assert talk.published == before
    in_one_place(talk)


def test_what_was_said_at_the_beginning_is_found_under_four_depths() -> None:
    talk = Talk(BUDGET, SMALL)
    needles = [f"needle-{number:03}-\u00fc\n\t<&>" for number in range(200)]
    for needle in needles:
        talk.say(needle + WORDS * 20, "noted " + WORDS * 20)
        talk.sweep()
    top = talk.seen_at(talk.turn + 1)
    assert max(summary.depth for summary in top) >= 4
    below = [message.text for summary in top for message in talk.expand(summary.id)]
    raw = [item.id for item in talk.items() if item.is_raw]
    below += [message.text for message in talk.messages if message.id in raw]
    assert [text for text in below if text.startswith("needle")] == [
        needle + WORDS * 20 for needle in needles
    ]


def test_the_context_of_a_past_turn_can_be_seen_again() -> None:
    talk = Talk(BUDGET, SMALL)
    shown = {}
    for number in range(40):
        talk.say(f"{number} " + WORDS * 20, WORDS * 20)
        shown[talk.turn] = assemble_view(talk.view(talk.turn), BUDGET)
        talk.sweep()
    assert len(talk.published) > 10
    for turn, context in shown.items():
        assert assemble_view(talk.view(turn), BUDGET) == context


def test_two_sweeps_in_a_row_lose_nothing() -> None:
    # pi #2608: the second compaction began behind what the first one kept raw.
    talk = Talk(BUDGET, SMALL)
    for number in range(20):
        talk.say(f"{number} " + WORDS * 20, WORDS * 20)
    assert talk.sweep(passes=1) is None
    assert talk.sweep(passes=1) is None
    in_one_place(talk)


@pytest.mark.parametrize("summariser", [extracting, echoing, failing])
def test_a_context_is_bounded_after_fifty_compactions(summariser: Summariser) -> None:
    # openclaw #48547: each compaction took up the last one's output, and the system prompt.
    talk = Talk(BUDGET, SMALL)
    sweeps = 0
    while sweeps < 50:
        talk.say("go on " + WORDS * 20, WORDS * 20)
        before = len(talk.published)
        assert talk.sweep(summariser) is Rest.FITS
        sweeps += len(talk.published) > before
        assert talk.tokens <= talk.threshold
    assert len(talk.items()) < 40
    assert max(one.tokens for one in talk.published.values()) < 1_200


def test_a_sweep_without_gain_stops_and_is_not_tried_again() -> None:
    # lossless-claw #639: a tail of 67,000 tokens over a target of 48,000 was compacted for ever.
    talk = Talk(64_000)
    talk.say("old " + WORDS * 40)
    talk.say("a long story " + WORDS * 4_300)
    assert talk.tokens > 67_000 > talk.threshold == 48_000
    for _ in range(100):
        assert talk.sweep(doubling) is Rest.EXHAUSTED
    assert not talk.asked


def test_a_tail_over_the_threshold_costs_no_calls_in_the_turns_after_it() -> None:
    # The same with sixty-four long messages instead of one, all of them protected.
    talk = Talk(64_000, ContextParameters(fresh_tail_share=1.0))
    for _ in range(32):
        talk.say("ask " + WORDS * 60, WORDS * 71)
    assert talk.tokens > 67_000
    for _ in range(100):
        talk.sweep(echoing)
    assert not talk.asked
    for _ in range(100):
        talk.say("go on", "yes")
        talk.sweep(extracting)
    # What leaves the tail is summarised once, in full leaves: 67,000 tokens are four.
    assert len(talk.asked) <= 5
    assert talk.tokens <= talk.threshold


def test_messages_too_small_to_gain_are_left_and_join_the_next_leaf() -> None:
    talk = Talk(BUDGET, SMALL)
    talk.say("hi", "hello")
    for _ in range(30):
        talk.say("more " + WORDS * 16, WORDS * 16)
        talk.sweep(breaking_out)
    first = talk.seen_at(talk.turn + 1)[0]
    assert first.first_seq == 1
    in_one_place(talk)
