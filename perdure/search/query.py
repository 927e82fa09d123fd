"""A query as a tree: words, phrases and prefixes under AND, OR and NOT.

Invariant: every node is a fact that engines translate and `matches` evaluates; its texts are
folded, never empty, and their inner white space is single spaces.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Term:
    """A word as typed: `deploy`, `gateway/run.py`, `C++`."""

    text: str


@dataclass(frozen=True, slots=True)
class Phrase:
    """What stood in quotes, punctuation and all."""

    text: str


@dataclass(frozen=True, slots=True)
class Prefix:
    """How a word begins."""

    text: str


@dataclass(frozen=True, slots=True)
class And:
    """All of the parts; of no parts, everything."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """At least one of the parts."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """What the part is not."""

    part: Node


Leaf: TypeAlias = Term | Phrase | Prefix
Node: TypeAlias = Leaf | And | Or | Not


@dataclass(frozen=True, slots=True)
class Query:
    """A parsed query. `text` is what was typed."""

    text: str
    root: Node

    @property
    def is_empty(self) -> bool:
        """Whether nothing was asked for, so that everything matches."""
        return self.root == And(())

    @property
    def wanted(self) -> tuple[Leaf, ...]:
        """The leaves that a match has or may have: those under no NOT, each once, in order."""
        return tuple(dict.fromkeys(_wanted(self.root, True)))


def _wanted(node: Node, positive: bool) -> Iterator[Leaf]:
    if isinstance(node, Not):
        yield from _wanted(node.part, not positive)
    elif isinstance(node, And | Or):
        for part in node.parts:
            yield from _wanted(part, positive)
    elif positive:
        yield node
