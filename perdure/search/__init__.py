"""Search, whatever is searched: the grammar, and what it means that a text matches.

Invariant: pure, and the same for transcripts, contexts and memory. Engines translate the tree of a
`Query` and are held to `matches`; no engine is handed what a person typed.
"""

from perdure.search.matching import Mode, matches, matches_folded, modes, places
from perdure.search.parsing import LONGEST_QUERY, parse
from perdure.search.query import And, Leaf, Node, Not, Or, Phrase, Prefix, Query, Term
from perdure.search.ranking import scores
from perdure.search.snippets import snippet
from perdure.search.text import fold, symbols, words

__all__ = [
    "LONGEST_QUERY",
    "And",
    "Leaf",
    "Mode",
    "Node",
    "Not",
    "Or",
    "Phrase",
    "Prefix",
    "Query",
    "Term",
    "fold",
    "matches",
    "matches_folded",
    "modes",
    "parse",
    "places",
    "scores",
    "snippet",
    "symbols",
    "words",
]
