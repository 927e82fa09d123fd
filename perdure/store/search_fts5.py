"""Everything of full-text search that is SQLite's: what FTS5 indexes, and queries in its language.

`search_words` keeps the words of a document in order as our own tokens, each character of a script
without spaces being one, so that one character of Chinese or Japanese is found and several as a
phrase; each symbol it holds, so that an emoji is found; its session and its tenant. `search_parts`
keeps the trigrams of each word that was ever said, once: a part of a word is found by the words
that hold it.

Invariant: what FTS5 answers to `upper` has every match, and what it answers to `lower` nothing
else. Where the two are one, the engine's answer is exact; else its candidates are to be verified.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias
from zlib import crc32

from sqlalchemy import Connection, CursorResult, text

from perdure.search import (
    And,
    Leaf,
    Mode,
    Node,
    Not,
    Or,
    Phrase,
    Prefix,
    Query,
    Term,
    fold,
    symbols,
    words,
)
from perdure.search.text import is_lettered
from perdure.store.search_tables import search_summary_documents

#: Tables that are the engine's own, which nobody describes elsewhere.
ENGINE_TABLES = ("search_words", "search_parts")
#: The indexes of the summaries of contexts, which are few: their trigrams are those of the texts.
_OF_SUMMARIES = {
    "search_words": "search_summary_words",
    "search_trigrams": "search_summary_trigrams",
}
#: An index of PostgreSQL's over a table that is described.
_INDEXES = ("search_vocabulary_parts",)

#: Longer words are indexed by their beginning: encoded data would only fill the index.
LONGEST_TOKEN = 64
#: Of a message so many characters give words whose parts can be found, and of a word so many: a
#: megabyte of words never heard of would hold the database's lock for seconds.
PARTED_TEXT = 100_000
_PARTED_WORD = 200
#: Shorter parts of words have no trigram.
SHORTEST_PART = 3
#: Base64, hexadecimal digests in a row, tokens: nobody looks for a part of them.
_ENCODED = re.compile("[a-z0-9+/=_-]{200,}")
#: A character of the private use areas, which no word holds: what begins with it is no text.
#: Every document has it as a token of its own.
_OURS = "\ue000"
_EVERYTHING = f'"{_OURS}"'

#: The words that hold a part of a word, or None when there are too many.
Holding: TypeAlias = Callable[[str], Sequence[str] | None]


def is_described(name: str | None, kind: str, _parents: object = None) -> bool:
    """Whether the metadata describes what the database has under this name; for alembic."""
    engines = (*ENGINE_TABLES, *_OF_SUMMARIES.values(), *_INDEXES)
    return kind not in ("table", "index") or not (name or "").startswith(engines)


def register(connection: sqlite3.Connection) -> None:
    """Make known to a connection the functions that the indexes are kept with."""
    for function, arguments in ((search_tokens, 3), (search_parted, 1), (search_flat, 1)):
        connection.create_function(function.__name__, arguments, function, deterministic=True)
    # Migration 0002 fills an index with it that 0007 does away with.
    connection.create_function("search_folded", 1, lambda _: "", deterministic=True)


def search_tokens(text: str, session: int, tenant: str) -> str:
    """The tokens of a document of a session, which has this number, parted by spaces."""
    folded = fold(text)
    tokens = [word[:LONGEST_TOKEN] for word in words(folded)]
    tokens += map(_symbol, sorted(symbols(folded)))
    return " ".join([*tokens, _OURS, _session(session), _tenant(tenant)])


def search_parted(text: str) -> str:
    """The words of a text whose parts are to be found, as a JSON array."""
    found = dict.fromkeys(words(_ENCODED.sub(" ", fold(text[:PARTED_TEXT]))))
    return json.dumps([word[:_PARTED_WORD] for word in found if len(word) > SHORTEST_PART])


def search_flat(text: str) -> str:
    """The text of a summary as it is compared, white space being one."""
    return " ".join(fold(text).split())


def _symbol(character: str) -> str:
    # FTS5's tokenizer takes ASCII symbols for spaces, and everything beyond ASCII for letters.
    if character > "\x7f" and character != _OURS:
        return character
    return f"{_OURS}{ord(character):x}"


def _session(number: int) -> str:
    return f"{_OURS}s{number}"


def _tenant(tenant: str) -> str:
    # Two tenants may share one: a token only narrows what is looked at.
    return f"{_OURS}t{crc32(tenant.encode()):x}"


@dataclass(frozen=True, slots=True)
class Match:
    """A query for one of the tables. `upper` None stands for every document, `lower` None for
    none that is certain. Where it `scans`, no word of the query narrows it down."""

    table: str
    upper: str | None
    lower: str | None
    scans: bool = False

    @property
    def is_exact(self) -> bool:
        """Whether every document of `upper` is a match."""
        return self.upper is not None and self.upper == self.lower


def translated(
    query: Query,
    mode: Mode,
    session: int | None = None,
    tenant: str | None = None,
    holding: Holding | None = None,
) -> Match:
    """A query in FTS5's language, narrowed to what may lie in a session or a tenant. `holding`
    knows the words that hold a part; it is needed for parts of words."""
    leaf_bounds = _phrase
    if mode is Mode.PARTS and holding is not None:
        leaf_bounds = partial(_parted, holding)
    bounds = _translate(query.root, leaf_bounds, _EVERYTHING)
    match = Match("search_words", bounds.upper, bounds.lower, bounds.upper == _EVERYTHING)
    if session is None and tenant is None:
        return match
    within = f'"{_tenant(tenant or "") if session is None else _session(session)}" AND '
    upper, lower = (_within(within, part) for part in (match.upper, match.lower))
    return replace(match, upper=upper, lower=lower)


def _within(place: str, part: str | None) -> str | None:
    return part and place + part


@dataclass(frozen=True, slots=True)
class _Bounds:
    upper: str | None
    lower: str | None


def _translate(
    node: Node, leaf_bounds: Callable[[Leaf], _Bounds], everything: str | None
) -> _Bounds:
    match node:
        case Term() | Phrase() | Prefix():
            return leaf_bounds(node)
        case Not(part):
            inner = _translate(part, leaf_bounds, everything)
            return _Bounds(
                _without(everything, inner.lower),
                None if inner.upper in (None, everything) else _without(everything, inner.upper),
            )
        case Or(parts):
            bounds = [_translate(part, leaf_bounds, everything) for part in parts]
            uppers = [one.upper for one in bounds]
            lowers = [one.lower for one in bounds if one.lower is not None]
            return _Bounds(
                everything if everything in uppers else _joined(" OR ", uppers),
                _joined(" OR ", lowers),
            )
        case And(parts):
            return _all(parts, leaf_bounds, everything)


def _all(
    parts: tuple[Node, ...], leaf_bounds: Callable[[Leaf], _Bounds], everything: str | None
) -> _Bounds:
    """Like AND of the bounds; but what is excluded is taken off in the end, which is cheaper than
    to look for everything else."""
    wanted = [
        _translate(part, leaf_bounds, everything) for part in parts if not isinstance(part, Not)
    ]
    excluded = [
        _translate(part.part, leaf_bounds, everything) for part in parts if isinstance(part, Not)
    ]
    upper = _joined(" AND ", [one.upper for one in wanted if one.upper != everything])
    lower = _joined(" AND ", [one.lower for one in wanted]) or everything
    uncertain = any(one.lower is None for one in wanted) or any(
        one.upper in (None, everything) for one in excluded
    )
    return _Bounds(
        _without(upper or everything, _joined(" OR ", [one.lower for one in excluded])),
        None if uncertain else _without(lower, _joined(" OR ", [one.upper for one in excluded])),
    )


def _without(those: str | None, excluded: str | None) -> str | None:
    return those if those is None or excluded is None else f"({those} NOT {excluded})"


def _joined(operator: str, parts: Sequence[str | None]) -> str | None:
    known = [part for part in parts if part is not None]
    return f"({operator.join(known)})" if len(known) > 1 else known[0] if known else None


def _phrase(leaf: Leaf) -> _Bounds:
    """A leaf as the words and symbols that a match has, in `search_words`."""
    tokens = words(leaf.text)
    signs = sorted(symbols(leaf.text))
    # A prefix may end inside a word, never inside a symbol or a character that is a word.
    begins = isinstance(leaf, Prefix) and is_lettered(leaf.text[-1])
    parts = [f'"{" ".join(token[:LONGEST_TOKEN] for token in tokens)}"'] if tokens else []
    if begins:
        parts[0] += " *"
    parts += [f'"{_symbol(sign)}"' for sign in signs]
    upper = f"({' AND '.join(parts)})" if len(parts) > 1 else parts[0]
    alone = leaf.text in (*tokens[:1], *signs[:1]) and len(leaf.text) < LONGEST_TOKEN
    return _Bounds(upper, upper if alone else None)


def _parted(holding: Holding, leaf: Leaf) -> _Bounds:
    """A leaf as the words that hold its ends, and what stands between them."""
    left, right = is_lettered(leaf.text[0]), is_lettered(leaf.text[-1])
    if not isinstance(leaf, Term) or not (left or right):
        return _phrase(leaf)
    tokens = words(leaf.text)
    whole = tokens[left : len(tokens) - right]
    parts = [f'"{_symbol(sign)}"' for sign in sorted(symbols(leaf.text))]
    parts += [f'"{" ".join(token[:LONGEST_TOKEN] for token in whole)}"'] if whole else []
    alone = len(tokens) == 1
    ends = {tokens[0]: (left, right)} if alone else {}
    if not alone:
        ends |= {tokens[0]: (True, False)} if left else {}
        ends |= {tokens[-1]: (False, True)} if right else {}
    certain = leaf.text == tokens[0]
    for token, (before, after) in ends.items():
        known = holding(token) if len(token) >= SHORTEST_PART else None
        if known is None:
            certain = False
            continue
        fitting = [
            word
            for word in known
            if (before or word.startswith(token)) and (after or word.endswith(token))
        ]
        certain = certain and all(len(word) < LONGEST_TOKEN for word in fitting)
        quoted = (f'"{word[:LONGEST_TOKEN]}"' for word in dict.fromkeys([token, *fitting]))
        parts.append(_joined(" OR ", list(quoted)) or "")
    upper = _joined(" AND ", parts) or _EVERYTHING
    return _Bounds(upper, upper if certain and len(parts) == 1 else None)


def translated_for_summaries(query: Query, mode: Mode, session: int) -> Match:
    """As `translated`, for the indexes of summaries, which know where trigrams stand."""
    if mode is Mode.PARTS:
        return Match("search_trigrams", _translate(query.root, _part, None).upper, None)
    return translated(query, mode, session)


def _part(leaf: Leaf) -> _Bounds:
    """A leaf as text that stands somewhere, in `search_summary_trigrams`."""
    flat = " ".join(leaf.text.split())
    return _Bounds('"{}"'.format(flat.replace('"', '""')) if len(flat) > 2 else None, None)


_NOTED = [search_summary_documents.c[name] for name in ("summary_id", "folded")]
_SUMMARIES = """
    SELECT {columns} FROM {documents}
    WHERE {match} d.session = :session AND d.epoch = :epoch AND d.level <= :level
    ORDER BY {order} DESC LIMIT :limit
"""


def _of_summaries(table: str | None) -> str:
    columns = ", ".join(f"d.{column.name}" for column in _NOTED)
    documents, match, order = "search_summary_documents AS d", "", "d.doc"
    if table is not None:
        documents = f"{table} AS w CROSS JOIN {documents} ON d.doc = w.rowid"
        match, order = f"{table} MATCH :match AND", "w.rowid"
    return _SUMMARIES.format(columns=columns, documents=documents, match=match, order=order)


_FOUND_SUMMARIES = {
    table: text(_of_summaries(name)).columns(*_NOTED)
    for table, name in (*_OF_SUMMARIES.items(), (None, None))
}


def found_summaries(
    connection: Connection, match: Match, *, session: int, epoch: int, level: int, limit: int
) -> CursorResult[Any]:
    """The id and folded text of those summaries of one session's epoch that `match.upper` finds,
    those made last first; read as they are taken."""
    table = None if match.upper is None else match.table
    values = {"session": session, "epoch": epoch, "level": level, "limit": limit}
    match_value = {} if table is None else {"match": match.upper}
    return connection.execute(_FOUND_SUMMARIES[table], values | match_value)
