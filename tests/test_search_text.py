"""How texts are folded, scored and shown: pure functions that every engine shares."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.search import Mode, fold, matches, parse, places, scores, snippet, symbols, words
from perdure.search.snippets import WIDTH

ANY_TEXT = st.one_of(
    st.text(),
    st.lists(
        st.sampled_from(
            ["a", "needle", "é", "e\u0301", "ﷺ", "京", "👍", "\n", " ", "．", "ﬁ", "ß"]
        ),
        max_size=200,
    ).map("".join),
)


@given(ANY_TEXT)
def test_folding_twice_is_folding_once(text: str) -> None:
    assert fold(fold(text)) == fold(text)


@given(ANY_TEXT)
def test_words_and_symbols_are_all_that_is_visible(text: str) -> None:
    folded = fold(text)
    rest = "".join(folded.split())
    for word in words(folded):
        assert word in rest
        rest = rest.replace(word, "", 1)
    assert set(rest) <= symbols(folded)
    assert not any(character.isspace() for character in symbols(folded))


@given(ANY_TEXT)
def test_ascii_is_folded_and_cut_as_everything_else_is(text: str) -> None:
    """The fast way for ASCII says what the other says."""
    ascii_text = text.encode("ascii", "ignore").decode()
    folded = fold(f"{ascii_text} é")
    assert folded == f"{fold(ascii_text)} é"
    assert words(folded) == [*words(fold(ascii_text)), "é"]
    assert symbols(folded) == symbols(fold(ascii_text))


# Scores --------------------------------------------------------------------------------------


@given(st.lists(ANY_TEXT, max_size=6), st.sampled_from(["needle", "京 OR needle", "👍", "NOT a"]))
def test_what_has_nothing_wanted_scores_nothing(texts: list[str], query: str) -> None:
    parsed = parse(query)
    folded = [fold(text) for text in texts]
    for text, score in zip(folded, scores(parsed, folded), strict=True):
        has = any(next(places(leaf, text), None) is not None for leaf in parsed.wanted)
        assert (score > 0) is has


def test_rare_words_weigh_more_and_repetitions_less_and_less() -> None:
    query = parse("rare OR common")
    rare, once, twice, often = scores(
        query, ["rare one two", "common one two", "common common two", "common common common"]
    )
    assert rare > often > twice > once
    assert often - twice < twice - once


# Snippets ------------------------------------------------------------------------------------


@given(ANY_TEXT, ANY_TEXT)
def test_a_snippet_is_a_short_piece_of_the_text(query: str, text: str) -> None:
    shown = snippet(parse(query), text)
    assert len(shown) <= WIDTH + 2
    assert "\n" not in shown
    assert shown.strip("…").strip() in " ".join(text.split()) or "…" in text


@given(ANY_TEXT, ANY_TEXT)
def test_a_snippet_shows_what_was_found(before: str, after: str) -> None:
    text = f"{before} 37needle41 {after}"
    query = parse("37needle41")
    assert matches(query, text)
    assert matches(query, snippet(query, text))
    assert matches(parse("eedle4"), snippet(parse("eedle4"), text, Mode.PARTS), Mode.PARTS)


@pytest.mark.parametrize("filler", ["word ", "ﷺ ", "e\u0301e\u0301 ", "각", "京"])
def test_a_snippet_is_found_far_into_a_text_that_folding_makes_longer_or_shorter(
    filler: str,
) -> None:
    text = filler * 2_000 + "the needle " + filler * 500
    assert "the needle" in snippet(parse("needle"), text)


def test_the_place_with_the_most_of_what_is_wanted_is_shown() -> None:
    text = "alpha " + "x " * 500 + "alpha and beta " + "x " * 500 + "beta"
    shown = snippet(parse("alpha beta"), text)
    assert "alpha and beta" in shown
    assert shown.startswith("…")
    assert shown.endswith("…")
