"""Labels are a lattice: a total order with its bottom, its top, and its join."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.domain.labels import Label, can_flow, join

labels = st.sampled_from(Label)


def test_the_order_is_public_internal_confidential_restricted() -> None:
    assert [label.value for label in sorted(Label, key=lambda label: label.rank)] == [
        "PUBLIC",
        "INTERNAL",
        "CONFIDENTIAL",
        "RESTRICTED",
    ]
    for lower, higher in pairwise(Label):
        assert can_flow(lower, higher)
        assert not can_flow(higher, lower)


@given(labels, labels, labels)
def test_flow_is_a_total_order(a: Label, b: Label, c: Label) -> None:
    assert can_flow(a, a)
    assert can_flow(a, b) or can_flow(b, a)
    if can_flow(a, b) and can_flow(b, a):
        assert a is b
    if can_flow(a, b) and can_flow(b, c):
        assert can_flow(a, c)


@given(st.lists(labels))
def test_a_join_is_the_lowest_that_all_may_flow_to(parts: list[Label]) -> None:
    joined = join(*parts)
    assert all(can_flow(part, joined) for part in parts)
    for bound in Label:
        if all(can_flow(part, bound) for part in parts):
            assert can_flow(joined, bound)


@given(st.lists(labels), st.lists(labels))
def test_a_join_depends_on_neither_order_nor_repetition(a: list[Label], b: list[Label]) -> None:
    assert join(*a, *b) is join(*b, *a) is join(join(*a), join(*b), *a)


def test_a_join_of_nothing_is_public() -> None:
    assert join() is Label.PUBLIC


@pytest.mark.parametrize("word", ["public", "SECRET", "", "PUBLIC "])
def test_an_unknown_word_is_no_label(word: str) -> None:
    with pytest.raises(ValueError, match="is not a valid Label"):
        Label(word)
