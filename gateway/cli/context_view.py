"""Contexts as lines of text: the DAG as a tree, what a turn saw, messages word for word.

Invariant: pure functions, but for `print_seen`; what is quoted on a screen passes `printable`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.console import Console
from rich.text import Text

from gateway.cli.outline import PLAIN, Row, branches, drawn, one_row
from gateway.cli.turn_view import DIM, WARN
from gateway.cli.words import ago, clock, one_line, printable, shown_arguments
from gateway.contexts import ContextNode, ContextTree, RawStretch, SeenContext, SeenMessage
from perdure.domain.labels import Label
from perdure.store.transcript import HistoryMessage

_TITLES = ("depth", "seq", "messages", "tokens", "source", "since", "until", "about")
_RIGHT = {"depth", "seq", "messages", "tokens", "source"}
#: Of a message a person sees this much; `--json` and `--expand` have it all.
_LINES = 12
_LENGTH = 1_000


def tree_lines(tree: ContextTree) -> list[Text]:
    """The context of the next turn, oldest first, each summary above what it was made of."""
    rows: list[Row] = []
    for item in tree.items:
        rows += [_raw(item)] if isinstance(item, RawStretch) else _below([item], "", top=True)
    told = [one_row(Text(line, DIM)) for line in _figures(tree)]
    if not rows:
        return [*told, Text("Nothing has been said yet.")]
    return told + drawn("summary", _TITLES, _RIGHT, rows)


def _figures(tree: ContextTree) -> Iterator[str]:
    room = ""
    if tree.budget is not None:
        room = f" of {tree.budget:,}, summarised from {tree.threshold:,} on"
    yield f"{printable(tree.session_key)} · epoch {tree.epoch} · after turn {tree.turn}"
    yield f"context: {tree.tokens:,} tokens{room}"
    share = tree.summarised / tree.messages if tree.messages else 0
    yield (
        f"messages: {tree.messages:,}, of which {tree.summarised:,} lie under summaries "
        f"({share:.0%})"
    )
    sweeps = tree.sweeps
    if sweeps.swept_at is not None:
        yield f"last sweep: {ago(sweeps.swept_at)}, ended by {sweeps.ended}"


def _below(nodes: Sequence[ContextNode], guide: str, *, top: bool = False) -> Iterator[Row]:
    for node, here, below in branches(nodes, guide):
        about = [
            *(["no model"] if node.fallback else []),
            *([] if node.label is Label.PUBLIC else [str(node.label)]),
            one_line(node.excerpt, 100),
        ]
        cells = (
            str(node.depth),
            _span(node.first_seq, node.last_seq),
            f"{node.messages:,}",
            f"{node.tokens:,}",
            f"{node.source_tokens:,}",
            *_times(node.earliest_at, node.latest_at),
            " · ".join(about),
        )
        style = WARN if node.fallback else PLAIN
        yield Row("" if top else here, node.id, cells, name_style=style)
        yield from _below(node.children, "" if top else below)


def _raw(stretch: RawStretch) -> Row:
    cells = (
        "",
        _span(stretch.first_seq, stretch.last_seq),
        f"{stretch.messages:,}",
        f"{stretch.tokens:,}",
        "",
        *_times(stretch.earliest_at, stretch.latest_at),
        "",
    )
    return Row("", "messages as they are", cells, name_style=DIM)


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}–{last}"


def _times(earliest: datetime, latest: datetime) -> tuple[str, str]:
    return f"{earliest.astimezone():%Y-%m-%d %H:%M}", f"{latest.astimezone():%Y-%m-%d %H:%M}"


def print_seen(out: Console, seen: SeenContext) -> None:
    """What a turn saw, message by message."""
    summaries = sum(message.kind == "summary" for message in seen.messages)
    messages = sum(message.kind == "message" for message in seen.messages)
    room = "" if seen.budget is None else f" of {seen.budget:,}"
    out.print(
        f"Turn {seen.turn} of {printable(seen.session_key)} was given {seen.tokens:,} tokens{room}"
        f": summaries {summaries}, messages {messages}."
    )
    if seen.cut:
        out.print("Older ones had no room.", style="dim")
    out.print()
    for message in seen.messages:
        out.print(_title(message), style="dim")
        for line in _lines(message):
            out.print(f"  {printable(line)}")
        out.print()


def _title(message: SeenMessage) -> str:
    if message.kind == "preface":
        return "before the first summary"
    if message.kind == "summary":
        return f"{message.id} · from {message.seq} on · {message.label}"
    who = _who(message, message.tool_name)
    return f"{message.seq} · {who} · {clock(message.at)} · {message.label}"


def _lines(message: SeenMessage) -> list[str]:
    text = message.text.rstrip()
    cut = text[:_LENGTH].split("\n")[:_LINES]
    rest = len(text) - len("\n".join(cut))
    lines = [*(cut if text else []), *([f"… and {rest:,} more characters"] if rest else [])]
    return lines + [
        f"→ {call.name} {shown_arguments(call.arguments)}" for call in message.tool_calls
    ]


def _who(message: HistoryMessage, tool: str | None = None) -> str:
    if tool is not None:
        return f"result of {printable(tool)}"
    if message.from_session is not None:
        return f"{message.role} · from {printable(message.from_session)}"
    return str(message.role)


def marked(message: HistoryMessage) -> str:
    """A message word for word behind a line that says whose it is and how long, so that nothing
    in it can be taken for the next one."""
    parts = [
        f"--- {message.id} · {_who(message)} · {message.at:%Y-%m-%d %H:%M:%S}Z · "
        f"{len(message.text)} characters ---\n{message.text}\n"
    ]
    for call in message.tool_calls:
        parts.append(
            f"--- calls {call.name} · {len(call.arguments)} characters ---\n{call.arguments}\n"
        )
    return "".join(parts)
