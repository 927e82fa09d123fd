"""The search grammar: every text has a query, and a query means what it says.

Properties first, over any text at all; then the sentences of the grammar, one by one.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.search import (
    And,
    Mode,
    Node,
    Not,
    Or,
    Phrase,
    Prefix,
    Query,
    Term,
    fold,
    matches,
    parse,
    symbols,
    words,
)

#: Text with everything the grammar gives a meaning, more often than chance would.
PIECES = st.one_of(
    st.sampled_from("\"“”()-* \t\n.,;:!?/@+#_'’\u0301\ufe0f\x00\ud800"),
    st.sampled_from(["AND", "OR", "NOT", "and", "run.py", "C++", "38.101", "京", "日本", "❤️"]),
    st.sampled_from("aÄß한ไ👍ﬁ²…"),
)
ANY_TEXT = st.one_of(st.text(), st.lists(PIECES, max_size=30).map("".join))
WORD = st.from_regex(r"[a-z0-9]{1,8}", fullmatch=True)
LEAF = st.one_of(WORD.map(Term), WORD.map(Prefix), st.tuples(WORD, WORD).map(" ".join).map(Phrase))


def found(query: str, text: str) -> bool:
    return matches(parse(query), text)


def spelt(node: Node) -> str:
    """A tree as a person would type it."""
    match node:
        case Term(text):
            return text
        case Prefix(text):
            return f"{text}*"
        case Phrase(text):
            return f'"{text}"'
        case Not(part):
            return f"NOT ({spelt(part)})"
        case And(parts):
            return " ".join(f"({spelt(part)})" for part in parts)
        case Or(parts):
            return " OR ".join(f"({spelt(part)})" for part in parts)


def shape(node: Node) -> object:
    """A tree without what spelling does not keep: the nesting of one operator in itself."""
    match node:
        case Not(Not(part)):
            return shape(part)
        case Not(part):
            return ("not", shape(part))
        case And(parts) | Or(parts):
            flat: list[object] = []
            for part in map(shape, parts):
                inner = isinstance(part, tuple) and part[0] == type(node).__name__
                flat += part[1:] if inner else [part]  # type: ignore[index]
            return flat[0] if len(flat) == 1 else (type(node).__name__, *flat)
    return node


TREE = st.recursive(
    LEAF,
    lambda inner: st.one_of(
        inner.map(Not),
        st.lists(inner, min_size=2, max_size=4).map(tuple).map(And),
        st.lists(inner, min_size=2, max_size=4).map(tuple).map(Or),
    ),
    max_leaves=12,
)


@given(ANY_TEXT)
def test_every_text_has_a_query_and_it_can_be_evaluated(text: str) -> None:
    query = parse(text)
    assert query == parse(text)
    matches(query, text)
    matches(query, text, Mode.PARTS)
    assert query.is_empty == (not fold(text).split())


@given(ANY_TEXT, ANY_TEXT)
def test_what_is_found_as_words_is_found_as_parts(query: str, text: str) -> None:
    parsed = parse(query)
    if not any(isinstance(part, Not) for part in walk(parsed.root)):
        assert not matches(parsed, text) or matches(parsed, text, Mode.PARTS)


@given(ANY_TEXT)
def test_a_text_without_operators_finds_itself(text: str) -> None:
    query = parse(text)
    if not any(isinstance(part, Not) for part in walk(query.root)) and plain(text):
        assert matches(query, text)


@given(TREE)
def test_a_tree_survives_being_typed(tree: Node) -> None:
    assert shape(parse(spelt(tree)).root) == shape(tree)


@given(TREE, st.lists(WORD, max_size=8).map(" ".join))
def test_not_and_or_are_those_of_logic(tree: Node, text: str) -> None:
    holds = matches(Query("", tree), text)
    assert matches(Query("", Not(tree)), text) is not holds
    assert matches(Query("", And((tree, tree))), text) is holds
    assert matches(Query("", Or((tree, Not(tree)))), text)


@given(st.lists(WORD, min_size=1, max_size=6))
def test_words_are_those_of_the_text(text: list[str]) -> None:
    assert words(" ".join(text)) == text


@given(ANY_TEXT, ANY_TEXT)
def test_a_match_has_the_words_and_symbols_of_each_leaf(query: str, text: str) -> None:
    """What every index relies on."""
    for leaf in parse(query).wanted:
        if not matches(Query("", leaf), text):
            continue
        inner, outer = words(leaf.text), words(fold(text))
        whole = inner[:-1] if isinstance(leaf, Prefix) else inner
        assert set(whole) <= set(outer)
        assert symbols(leaf.text) <= symbols(fold(text))


def walk(node: Node) -> list[Node]:
    parts = (
        node.parts if isinstance(node, And | Or) else (node.part,) if isinstance(node, Not) else ()
    )
    return [node, *(found for part in parts for found in walk(part))]


def plain(text: str) -> bool:
    """Whether each word of a text is itself, whatever stands around it."""
    return all(word.isalnum() and word.isascii() for word in text.split())


@pytest.mark.parametrize(
    ("typed", "tree"),
    [
        ("deploy now", And((Term("deploy"), Term("now")))),
        ("deploy AND now", And((Term("deploy"), Term("now")))),
        ("deploy AND NOT staging", And((Term("deploy"), Not(Term("staging"))))),
        ("deploy -staging", And((Term("deploy"), Not(Term("staging"))))),
        ('-"a b" c', And((Not(Phrase("a b")), Term("c")))),
        ("-(a OR b) c", And((Not(Or((Term("a"), Term("b")))), Term("c")))),
        ("a b OR c d", Or((And((Term("a"), Term("b"))), And((Term("c"), Term("d")))))),
        ("(alpha OR beta) gamma", And((Or((Term("alpha"), Term("beta"))), Term("gamma")))),
        ("(alpha OR beta)gamma", And((Or((Term("alpha"), Term("beta"))), Term("gamma")))),
        ('"Exact  phrase"', Phrase("exact phrase")),
        ("“smart quotes”", Phrase("smart quotes")),
        ("deplo*", Prefix("deplo")),
        ("NOT NOT a", Term("a")),
        ("and or not", And((Term("and"), Term("or"), Term("not")))),
    ],
)
def test_the_grammar(typed: str, tree: Node) -> None:
    assert parse(typed).root == tree


@pytest.mark.parametrize(
    ("typed", "tree"),
    [
        ("NOT", Term("not")),
        ("AND", Term("and")),
        ("a OR", And((Term("a"), Term("or")))),
        ("OR a", And((Term("or"), Term("a")))),
        ("a OR OR b", Or((And((Term("a"), Term("or"))), Term("b")))),
        ("NOT OR a", Or((Term("not"), Term("a")))),
        ("(NOT) b", And((Term("not"), Term("b")))),
        ("a - b", And((Term("a"), Term("-"), Term("b")))),
        ("(", Term("(")),
        ("()", Term("()")),
        ("*", Term("*")),
        ('"', Term('"')),
        ('""', Term('""')),
        ("->", Term("->")),
    ],
)
def test_an_operator_without_an_operand_is_a_word(typed: str, tree: Node) -> None:
    assert parse(typed).root == tree


@pytest.mark.parametrize(
    ("typed", "tree"),
    [
        ('"unclosed', Term("unclosed")),
        ('a "b c', And((Term("a"), Term("b"), Term("c")))),
        ("(a b", And((Term("a"), Term("b")))),
        ("a) b", And((Term("a"), Term("b")))),
        ("((a)", Term("a")),
        ("a () b", And((Term("a"), Term("b")))),
        ("a -() b", And((Term("a"), Term("b")))),
        ('a "" b', And((Term("a"), Term("b")))),
        ("(" * 5_000 + "a" + ")" * 5_000, Term("a")),
        ("(a OR " * 500 + "b", None),
    ],
)
def test_what_is_unbalanced_is_forgiven(typed: str, tree: Node | None) -> None:
    parsed = parse(typed).root
    assert tree is None or parsed == tree
    matches(Query(typed, parsed), "a")


@pytest.mark.parametrize(
    ("typed", "tree"),
    [
        ("gateway/run.py", Term("gateway/run.py")),
        ("user@host", Term("user@host")),
        ("C++", Term("c++")),
        ("run(x)", Term("run(x)")),
        ("(run(x))", Term("run(x)")),
        ("rows[0],", Term("rows[0]")),
        ("--verbose", Term("--verbose")),
        ("What broke?", And((Term("what"), Term("broke")))),
        ('"broke?"', Phrase("broke?")),
        ("[link]", Term("link")),
        ("*args", Term("args")),
        ("don’t", Term("don't")),
    ],
)
def test_identifiers_are_words_and_prose_loses_its_punctuation(typed: str, tree: Node) -> None:
    assert parse(typed).root == tree


@pytest.mark.parametrize(
    ("query", "text", "expected"),
    [
        ("run.py", "see gateway/run.py:12", True),
        ("un.py", "see gateway/run.py:12", False),
        ("38.101", "TS 38.101-1", True),
        ("38.101", "138.101", False),
        ("don't", "I don’t know", True),
        ("don't", "dont", False),
        ("C++", "modern c++17", True),
        ("C++", "vitamin c", False),
        ("art", "start", False),
        ("art", "ART!", True),
        ("snake", "snake_case", True),
        ("京", "東京タワー", True),
        ("東京", "東京都", True),
        ("東京", "東西京", False),
        ("서울", "서울에서", True),
        ("サーバ", "ｻｰﾊﾞｰ", True),
        ("กรุง", "กรุงเทพ", True),
        ("iphone", "iPhone手机", True),
        ("हिन्दी", "यह हिन्दी है", True),
        ("हिन्द", "यह हिन्दी है", False),
        ("👍", "ok 👍🏽", True),
        ("❤", "❤️", True),
        ("strasse", "Straße", True),
        ("ＡＢＣ", "abc", True),
        ("ﬁle", "FILE", True),
        ('"exact phrase"', "an Exact\n phrase here", True),
        ('"exact phrase"', "an exact long phrase", False),
        ('"exact phrase"', "phrase exact", False),
        ("deplo*", "deployment", True),
        ("deplo*", "redeploy", False),
        ("run.p*", "gateway/run.py", True),
        ("deploy AND NOT staging", "deploy to production", True),
        ("deploy AND NOT staging", "deploy to staging", False),
        ("(alpha OR beta) gamma", "beta and gamma", True),
        ("(alpha OR beta) gamma", "alpha and beta", False),
    ],
)
def test_what_matches(query: str, text: str, expected: bool) -> None:
    assert found(query, text) is expected


def test_parts_are_found_inside_words() -> None:
    assert matches(parse("un.py"), "gateway/run.py", Mode.PARTS)
    assert matches(parse("client"), "SessionClient", Mode.PARTS)
    assert not matches(parse("client NOT session"), "SessionClient", Mode.PARTS)
    # A star and quotes say where a word begins, and ends.
    assert not matches(parse("lient*"), "client", Mode.PARTS)
    assert not matches(parse('"lient"'), "client", Mode.PARTS)
