"""From a query to what an engine is asked.

Invariant: what the engine answers to `upper` has every match, and what it answers to `lower`
nothing else. Where the two are one, the engine's answer is exact; else its candidates are to be
verified. The bounds are the same on every engine, which only spell them differently.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, TypeAlias

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
    symbols,
    words,
)
from perdure.search.text import is_lettered
from perdure.store.search_tokens import (
    EVERYTHING,
    LONGEST_TOKEN,
    SHORTEST_PART,
    session_token,
    symbol_token,
    tenant_token,
    word_token,
)

#: The words that hold a part of a word, or None when there are too many.
Holding: TypeAlias = Callable[[str], Sequence[str] | None]


class Language(Protocol):
    """How an engine spells a query. Every part is complete in itself."""

    def phrase(self, tokens: Sequence[str], *, begins: bool = False) -> str:
        """These tokens in this order; the last one may go on if it only `begins` a word."""

    def all_of(self, parts: Sequence[str]) -> str:
        """All of several."""

    def any_of(self, parts: Sequence[str]) -> str:
        """One of several."""

    def without(self, those: str, excluded: str) -> str:
        """Those that are not among the excluded."""


class Containing(Protocol):
    """How an engine spells that a text holds another, for texts that are not looked up by their
    words."""

    def containing(self, text: str) -> str:
        """Documents whose flat text holds `text`, which is flat."""

    def all_of(self, parts: Sequence[str]) -> str:
        """All of several."""

    def any_of(self, parts: Sequence[str]) -> str:
        """One of several."""

    def without(self, those: str, excluded: str) -> str:
        """Those that are not among the excluded."""


@dataclass(frozen=True, slots=True)
class Match:
    """A query in an engine's language; `parts` tells that it asks for texts that hold others.
    `upper` None stands for every document, `lower` None for none that is certain. Where it
    `scans`, no word of the query narrows it down."""

    upper: str | None
    lower: str | None = None
    parts: bool = False
    scans: bool = False

    @property
    def is_exact(self) -> bool:
        """Whether every document of `upper` is a match."""
        return self.upper is not None and self.upper == self.lower


def translated(
    query: Query,
    mode: Mode,
    language: Language,
    *,
    session: int | None = None,
    tenant: str | None = None,
    holding: Holding | None = None,
) -> Match:
    """A query narrowed to what may lie in a session or a tenant. `holding` knows the words that
    hold a part; it is needed for parts of words."""
    leaf_bounds = partial(_phrase, language)
    if mode is Mode.PARTS and holding is not None:
        leaf_bounds = partial(_parted, language, holding)
    everything = language.phrase([EVERYTHING])
    bounds = _Translation(language, leaf_bounds, everything).of(query.root)
    match = Match(bounds.upper, bounds.lower, scans=bounds.upper == everything)
    if session is None and tenant is None:
        return match
    token = tenant_token(tenant or "") if session is None else session_token(session)
    upper, lower = (
        None if part is None else language.all_of([language.phrase([token]), part])
        for part in (match.upper, match.lower)
    )
    return replace(match, upper=upper, lower=lower)


def translated_parts(query: Query, containing: Containing) -> Match:
    """A query for texts that hold what was typed anywhere."""
    bounds = _Translation(containing, partial(_part, containing), None).of(query.root)
    return Match(bounds.upper, parts=True)


@dataclass(frozen=True, slots=True)
class _Bounds:
    upper: str | None
    lower: str | None


@dataclass(frozen=True, slots=True)
class _Translation:
    """`everything` is what finds every document, where there is such a thing."""

    language: Language | Containing
    leaf_bounds: Callable[[Leaf], _Bounds]
    everything: str | None

    def of(self, node: Node) -> _Bounds:
        match node:
            case Term() | Phrase() | Prefix():
                return self.leaf_bounds(node)
            case Not(part):
                inner = self.of(part)
                return _Bounds(
                    self._without(self.everything, inner.lower),
                    None
                    if inner.upper in (None, self.everything)
                    else self._without(self.everything, inner.upper),
                )
            case Or(parts):
                bounds = [self.of(part) for part in parts]
                uppers = [one.upper for one in bounds]
                return _Bounds(
                    self.everything if self.everything in uppers else self._any(uppers),
                    self._any([one.lower for one in bounds]),
                )
            case And(parts):
                return self._and(parts)

    def _and(self, parts: tuple[Node, ...]) -> _Bounds:
        """Like AND of the bounds; but what is excluded is taken off in the end, which is cheaper
        than to look for everything else."""
        wanted = [self.of(part) for part in parts if not isinstance(part, Not)]
        excluded = [self.of(part.part) for part in parts if isinstance(part, Not)]
        upper = self._all([one.upper for one in wanted if one.upper != self.everything])
        lower = self._all([one.lower for one in wanted]) or self.everything
        uncertain = any(one.lower is None for one in wanted) or any(
            one.upper in (None, self.everything) for one in excluded
        )
        return _Bounds(
            self._without(upper or self.everything, self._any([one.lower for one in excluded])),
            None if uncertain else self._without(lower, self._any([one.upper for one in excluded])),
        )

    def _without(self, those: str | None, excluded: str | None) -> str | None:
        if those is None or excluded is None:
            return those
        return self.language.without(those, excluded)

    def _all(self, parts: Sequence[str | None]) -> str | None:
        return _joined(self.language.all_of, parts)

    def _any(self, parts: Sequence[str | None]) -> str | None:
        return _joined(self.language.any_of, parts)


def _joined(join: Callable[[Sequence[str]], str], parts: Sequence[str | None]) -> str | None:
    known = [part for part in parts if part is not None]
    return join(known) if len(known) > 1 else known[0] if known else None


def _phrase(language: Language, leaf: Leaf) -> _Bounds:
    """A leaf as the words and symbols that a match has."""
    tokens = words(leaf.text)
    signs = sorted(symbols(leaf.text))
    # A prefix may end inside a word, never inside a symbol or a character that is a word.
    begins = isinstance(leaf, Prefix) and is_lettered(leaf.text[-1])
    parts = [language.phrase([*map(word_token, tokens)], begins=begins)] if tokens else []
    parts += [language.phrase([symbol_token(sign)]) for sign in signs]
    upper = language.all_of(parts) if len(parts) > 1 else parts[0]
    alone = leaf.text in (*tokens[:1], *signs[:1]) and len(leaf.text) < LONGEST_TOKEN
    return _Bounds(upper, upper if alone else None)


def _parted(language: Language, holding: Holding, leaf: Leaf) -> _Bounds:
    """A leaf as the words that hold its ends, and what stands between them."""
    left, right = is_lettered(leaf.text[0]), is_lettered(leaf.text[-1])
    if not isinstance(leaf, Term) or not (left or right):
        return _phrase(language, leaf)
    tokens = words(leaf.text)
    whole = tokens[left : len(tokens) - right]
    parts = [language.phrase([symbol_token(sign)]) for sign in sorted(symbols(leaf.text))]
    parts += [language.phrase([*map(word_token, whole)])] if whole else []
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
        spelt = [language.phrase([word_token(word)]) for word in dict.fromkeys([token, *fitting])]
        parts.append(_joined(language.any_of, spelt) or "")
    upper = _joined(language.all_of, parts) or language.phrase([EVERYTHING])
    return _Bounds(upper, upper if certain and len(parts) == 1 else None)


def _part(containing: Containing, leaf: Leaf) -> _Bounds:
    """A leaf as text that stands somewhere; what is too short has no trigram."""
    flat = " ".join(leaf.text.split())
    return _Bounds(containing.containing(flat) if len(flat) >= SHORTEST_PART else None, None)
