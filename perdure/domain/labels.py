"""The lattice of labels. Information flows up it, never down; an unknown word is no level."""

from __future__ import annotations

from enum import StrEnum


class Label(StrEnum):
    """PUBLIC < INTERNAL < CONFIDENTIAL < RESTRICTED; the order of definition is the order."""

    PUBLIC = "PUBLIC"
    INTERNAL = "INTERNAL"
    CONFIDENTIAL = "CONFIDENTIAL"
    RESTRICTED = "RESTRICTED"

    @property
    def rank(self) -> int:
        """Height in the lattice, PUBLIC being 0."""
        return _RANK[self]


_RANK = {label: rank for rank, label in enumerate(Label)}


def can_flow(source: Label, destination: Label) -> bool:
    """Whether information labelled `source` may reach a place labelled `destination`."""
    return source.rank <= destination.rank


def join(*labels: Label) -> Label:
    """The lowest label that all of `labels` may flow to; PUBLIC for none."""
    return max(labels, key=lambda label: label.rank, default=Label.PUBLIC)


def meet(*labels: Label) -> Label:
    """The highest label that may flow to each of `labels`; RESTRICTED for none."""
    return min(labels, key=lambda label: label.rank, default=Label.RESTRICTED)
