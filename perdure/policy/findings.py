"""What secret detection hands on, and how the findings of several detectors become one list."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Span(NamedTuple):
    """Characters `start` to `end` (not included) look like a secret of the kind `kind`."""

    start: int
    end: int
    kind: str


class Finding(NamedTuple):
    """A secret in a text: its kind, its line (from 1) and its characters, the end not included.

    The value itself is left out on purpose, so that a finding may be logged.
    """

    kind: str
    line: int
    start: int
    end: int


def merged(spans: Iterable[Span]) -> list[Span]:
    """`spans` in order, those that overlap as one, under the kind of the one that begins first."""
    found: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end, span.kind)):
        if found and span.start < found[-1].end:
            found[-1] = found[-1]._replace(end=max(span.end, found[-1].end))
        else:
            found.append(span)
    return found


def located(text: str, spans: Iterable[Span]) -> tuple[Finding, ...]:
    """Merged spans of `text` with their lines."""
    findings = []
    line, seen = 1, 0
    for span in spans:
        line += text.count("\n", seen, span.start)
        seen = span.start
        findings.append(Finding(span.kind, line, span.start, span.end))
    return tuple(findings)
