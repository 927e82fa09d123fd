"""A session key has one spelling, and what is accepted comes back unchanged."""

from __future__ import annotations

import string

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from perdure.domain.errors import InvalidArgument
from perdure.domain.keys import MAX_KEY_BYTES, Kind, Marker, SessionKey, escape, unescape

#: Hypothesis makes no lone surrogates, which no encoding can carry.
values = st.text(min_size=1, max_size=20)
markers = st.lists(
    st.tuples(st.sampled_from(Marker), values), max_size=3, unique_by=lambda pair: pair[0]
)


@st.composite
def keys(draw: st.DrawFn) -> SessionKey:
    return SessionKey(tenant=draw(values), user=draw(values), markers=tuple(draw(markers)))


@given(st.text())
@example("@")
@example("@41")
@example("a@2")
@example("\x00~:@/")
@example("𝄞é")
def test_every_value_survives_escaping(value: str) -> None:
    escaped = escape(value)
    assert unescape(escaped) == value
    assert escaped.isascii()
    assert not set(escaped) & set(":~ \x00\n%?#\\\"'")


@given(st.text(), st.text())
def test_different_values_are_spelt_differently(one: str, other: str) -> None:
    assert (escape(one) == escape(other)) == (one == other)


@given(st.text(alphabet=string.ascii_letters + string.digits + "_.+/=,!-"))
def test_plain_values_are_spelt_as_they_are(value: str) -> None:
    assert escape(value) == value


@given(keys())
def test_a_key_that_is_spelt_and_parsed_is_the_same_key(key: SessionKey) -> None:
    assume(len(str(key)) <= MAX_KEY_BYTES)
    assert SessionKey.parse(str(key)) == key


@given(st.text(max_size=60))
@example("a:b~peer~c")
@example("a:b~peer~@7E")
@example("a:b~peer~@7e")
@example("a:b@41")
@example("a:b~run~x~guild~y")
@example(":")
@example("a:b~")
@example("~~")
@example("a:b:c")
@example("a:b~thread~" + "é")
@example("a:\ud800")
def test_what_is_accepted_has_one_spelling(text: str) -> None:
    """`str(parse(text)) == text`, whatever the text; else it is refused, and in no other way."""
    try:
        key = SessionKey.parse(text)
    except InvalidArgument:
        return
    assert str(key) == text


@given(keys(), st.data())
def test_a_key_in_another_spelling_is_refused(key: SessionKey, data: st.DataObject) -> None:
    """A character that needs no escape may not have one: two spellings would be two sessions."""
    text = str(key)
    assume(len(text) + 2 <= MAX_KEY_BYTES)
    places = [index for index, char in enumerate(text) if char in string.ascii_lowercase]
    places = [index for index in places if not _in_marker(text, index)]
    assume(places)
    place = data.draw(st.sampled_from(places))
    other = f"{text[:place]}@{ord(text[place]):02X}{text[place + 1 :]}"
    with pytest.raises(InvalidArgument):
        SessionKey.parse(other)


def _in_marker(text: str, index: int) -> bool:
    """Whether a character belongs to a marker's name, which is never escaped."""
    return text[:index].count("~") % 2 == 1


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("default:bob", Kind.DM),
        ("default:678314278~peer~678314278", Kind.DM),
        ("acme:bob~agent~main~thread~42", Kind.DM),
        ("default:bob~guild~g1", Kind.GROUP),
        ("default:bob~channel~discord~guild~g1", Kind.GROUP),
        ("default:bob~run~run_main_01", Kind.SUB_AGENT),
        ("default:bob~guild~g1~run~run_main_01", Kind.SUB_AGENT),
    ],
)
def test_the_kind_is_read_off_the_key(text: str, kind: Kind) -> None:
    assert SessionKey.parse(text).kind is kind


@given(keys())
def test_a_marker_is_found_by_its_name(key: SessionKey) -> None:
    given_markers = dict(key.markers)
    for marker in Marker:
        assert key.get(marker) == given_markers.get(marker)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("bob", "does not begin with tenant:user"),
        (":bob", "does not begin with tenant:user"),
        ("default:", "does not begin with tenant:user"),
        ("default:bob~peer", "without a value"),
        ("default:bob~peer~", "empty or not escaped"),
        ("default:bob~cat~x", "unknown marker 'cat'"),
        ("default:bob~PEER~x", "unknown marker 'PEER'"),
        ("default:bob~peer~a~peer~b", "names a marker twice"),
        ("default:bob smith", "not escaped"),
        ("default:bob\n", "not escaped"),
        ("default:a:b", "not escaped"),
        ("default:b@7e", "not escaped"),
        ("default:b@C3", "not escaped"),
        ("default:é", "not escaped"),
        ("default:\ud800", "not escaped"),
        ("default:" + "x" * MAX_KEY_BYTES, f"the limit is {MAX_KEY_BYTES}"),
    ],
)
def test_a_refusal_says_what_is_wrong(text: str, says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        SessionKey.parse(text)


def test_a_refusal_shows_how_to_write_it() -> None:
    with pytest.raises(InvalidArgument) as refused:
        SessionKey.parse("default:bob smith")
    assert "'bob@20smith'" in refused.value.hint


def test_a_key_of_exactly_the_limit_is_accepted() -> None:
    text = "default:" + "x" * (MAX_KEY_BYTES - len("default:"))
    assert str(SessionKey.parse(text)) == text
