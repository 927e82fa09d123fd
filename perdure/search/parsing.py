"""From what a person types to a `Query`: one grammar for every search.

Words are ANDed. `AND`, `OR` and `NOT` in capitals are operators, as are `-` before a word and
parentheses; NOT binds tighter than AND, and AND tighter than OR. `"…"` is a phrase, `word*` a
prefix. A parenthesis opens a group only where a word may begin, so `run(x)` is a word.

Invariant: every text has a query, and no query asks for nothing where something visible was
typed. An operator without an operand is a word; quotes and parentheses without a partner are
ignored, and so are those around nothing, unless nothing else is there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto

from perdure.search.query import And, Leaf, Node, Not, Or, Phrase, Prefix, Query, Term
from perdure.search.text import fold

#: Groups inside groups; parentheses beyond are ignored. Nobody types that many, it bounds the
#: recursion of whoever walks the tree, and the parser of SQLite's FTS5 takes no more than eleven.
MAX_DEPTH = 8

#: The longest query that engines are asked, in characters; callers refuse longer ones.
LONGEST_QUERY = 2_000

_OPERATORS = ("AND", "OR", "NOT")
_QUOTES = '"“”„‟＂'
#: Punctuation that stands around words in prose, and is no part of what is looked for. Quotes
#: keep it, and so does a word that it balances: `run(x)`.
_AROUND = ".,;:!?…()[]{}<>'‘’`、。，．！？：；「」『』（）【】《》〈〉"
_CLOSING = {")": "(", "]": "[", "}": "{", ">": "<"}
_LEXEME = re.compile(
    rf"""
      (?P<quoted>-?[{_QUOTES}](?P<phrase>[^{_QUOTES}]*)[{_QUOTES}])
    | (?P<open>-?\()
    | (?P<close>\))
    | (?P<word>[^\s{_QUOTES}]+)
    | (?P<stray>[{_QUOTES}])
    | \s+
    """,
    re.VERBOSE,
)


class _Kind(Enum):
    LEAF = auto()
    OPEN = auto()
    CLOSE = auto()
    AND = auto()
    OR = auto()
    NOT = auto()


@dataclass(frozen=True, slots=True)
class _Token:
    kind: _Kind
    leaf: Leaf | None = None


_OPEN, _CLOSE, _MINUS = _Token(_Kind.OPEN), _Token(_Kind.CLOSE), _Token(_Kind.NOT)


def parse(text: str) -> Query:
    """The query that `text` asks; it never raises. Blank text is the empty query."""
    tokens = _resolved(_balanced(_tokens(text)))
    if tokens:
        return Query(text, _Parser(tokens).parse())
    literal = _clean(text)
    return Query(text, Term(literal) if literal else And(()))


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    place, depth = 0, 0
    while (found := _LEXEME.match(text, place)) is not None:
        place = found.end()
        negated = [_MINUS] * (found[0][0] == "-")
        if found["quoted"]:
            phrase = _clean(found["phrase"])
            tokens += [*negated, _Token(_Kind.LEAF, Phrase(phrase))] if phrase else []
        elif found["open"]:
            tokens += [*negated, _OPEN]
            depth += 1
        elif found["close"]:
            tokens.append(_CLOSE)
            depth = max(depth - 1, 0)
        elif found["word"]:
            word = _until_closed(found["word"]) if depth else found["word"]
            place = found.start() + len(word)
            tokens += _word(word)
    return tokens


def _until_closed(word: str) -> str:
    """The word as far as it does not close the group it stands in."""
    own = 0
    for place, character in enumerate(word):
        own += (character == "(") - (character == ")")
        if own < 0:
            return word[:place]
    return word


def _word(word: str) -> list[_Token]:
    if word in _OPERATORS:
        return [_Token(_Kind[word])]
    negated = len(word) > 1 and word[0] == "-" and (word[1].isalnum() or word[1] > "\x7f")
    leaf = _leaf(word[negated:])
    return [] if leaf is None else [_MINUS] * negated + [_Token(_Kind.LEAF, leaf)]


def _leaf(word: str) -> Leaf | None:
    stem = word.rstrip("*")
    is_prefix = stem != word
    # A prefix may end in anything; before the beginning of a word there is nothing to look for.
    bare = stem.lstrip(_AROUND + "*") if is_prefix else _bare(word.lstrip("*"))
    if any(map(str.isalnum, bare)):
        return Prefix(_clean(bare)) if is_prefix else Term(_clean(bare))
    text = _clean(word)
    return Term(text) if text else None


def _bare(word: str) -> str:
    word = word.lstrip(_AROUND)
    while word and word[-1] in _AROUND:
        opening = _CLOSING.get(word[-1])
        if opening is not None and word.count(opening) >= word.count(word[-1]):
            break
        word = word[:-1]
    return word


def _clean(text: str) -> str:
    return " ".join(fold(text).split())


def _balanced(tokens: list[_Token]) -> list[_Token]:
    """The tokens without parentheses that have no partner, surround nothing, or lie too deep."""
    kept: list[_Token] = []
    opened: list[int] = []
    ignored = 0
    for token in tokens:
        if token is _OPEN and len(opened) >= MAX_DEPTH:
            ignored += 1
        elif token is _OPEN:
            opened.append(len(kept))
            kept.append(token)
        elif token is not _CLOSE:
            kept.append(token)
        elif ignored:
            ignored -= 1
        elif opened:
            start = opened.pop()
            if start == len(kept) - 1:
                del kept[start:]
                if kept and kept[-1] is _MINUS:
                    kept.pop()
            else:
                kept.append(token)
    for start in reversed(opened):
        del kept[start]
    return kept


def _resolved(tokens: list[_Token]) -> list[_Token]:
    """The tokens, operators without an operand made the words they are spelt as."""
    resolved = list(tokens)
    begins = False  # whether an operand begins behind the place we look at
    for place in range(len(tokens) - 1, -1, -1):
        kind = tokens[place].kind
        if kind is _Kind.NOT and not begins:
            resolved[place] = _as_word(kind)
            begins = True
        else:
            if kind in (_Kind.AND, _Kind.OR) and not begins:
                resolved[place] = _as_word(kind)
            begins = resolved[place].kind in (_Kind.LEAF, _Kind.OPEN, _Kind.NOT)
    ended = False  # whether an operand ends before it
    for place, token in enumerate(resolved):
        if token.kind in (_Kind.AND, _Kind.OR) and not ended:
            resolved[place] = _as_word(token.kind)
        ended = resolved[place].kind in (_Kind.LEAF, _Kind.CLOSE)
    return resolved


def _as_word(kind: _Kind) -> _Token:
    return _Token(_Kind.LEAF, Term(kind.name.lower()))


class _Parser:
    """Recursive descent over resolved tokens, which are well-formed."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._place = 0

    def parse(self) -> Node:
        return self._either()

    def _next(self) -> _Kind | None:
        return self._tokens[self._place].kind if self._place < len(self._tokens) else None

    def _either(self) -> Node:
        parts = [self._all()]
        while self._next() is _Kind.OR:
            self._place += 1
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else Or(_flat(parts, Or))

    def _all(self) -> Node:
        parts = [self._one()]
        while self._next() not in (None, _Kind.OR, _Kind.CLOSE):
            self._place += self._next() is _Kind.AND
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else And(_flat(parts, And))

    def _one(self) -> Node:
        negated = False
        while self._next() is _Kind.NOT:
            self._place += 1
            negated = not negated
        token = self._tokens[self._place]
        self._place += 1
        node: Node
        if token.leaf is not None:
            node = token.leaf
        else:
            node = self._either()
            self._place += 1  # its closing parenthesis
        if not negated:
            return node
        return node.part if isinstance(node, Not) else Not(node)


def _flat(parts: list[Node], kind: type[And] | type[Or]) -> tuple[Node, ...]:
    flat: list[Node] = []
    for part in parts:
        flat += part.parts if isinstance(part, kind) else (part,)
    return tuple(flat)
