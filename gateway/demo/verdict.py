"""A check: a promise, whether it was held, and the figures it stands on.

Invariant: what is found is told in figures, and the words for people are made of those alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from perdure.domain.messages import Frozen

Figures = dict[str, int | float | None]


class Check(Frozen):
    """A promise, and what was found. `found` says the figures for people."""

    name: str
    promise: str
    held: bool
    found: str
    figures: Figures


def verdict(
    name: str, promise: str, held: bool, figures: Mapping[str, int | float | None]
) -> Check:
    """The check of that name, its figures put into words."""
    told = " · ".join(
        f"{words.replace('_', ' ')} {_number(value)}" for words, value in figures.items()
    )
    return Check(name=name, promise=promise, held=held, found=told, figures=dict(figures))


def _number(value: float | None) -> str:
    if value is None:
        return "never"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
