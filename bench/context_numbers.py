"""Why the numbers of `[context]` are what they are: each varied alone over one long conversation.

Run with `python -m bench.context_numbers`. Nothing is stored and no model is called: the planning
is Perdure's own, messages are sizes drawn as agents' are (a median of 250 tokens, some 14,000,
eight to a turn), and a summary is 0.6 to 1.2 times as long as it was asked to be. One seed, so the
table is the same on every machine.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from perdure.context.items import Item
from perdure.context.planning import Pass, Rest, plan
from perdure.context.presentation import SUMMARY_OVERHEAD
from perdure.context.summaries import ContextParameters
from perdure.domain.messages import Role

#: The history's share of a window of 200,000 tokens, beside instructions and tools.
BUDGET = 176_000
MESSAGES = 20_000
A_TURN = 8

VARIED: dict[str, Sequence[float]] = {
    "threshold": (0.5, 0.6, 0.75, 0.9),
    "fresh_tail": (16, 64, 256),
    "leaf_chunk_tokens": (5_000, 10_000, 20_000, 40_000),
    "leaf_target_max": (600, 1_200, 2_400, 4_800),
    "leaf_fan_in": (2, 4, 8, 16),
    "condensed_fan_in": (2, 4, 8),
    "condensed_target": (1_000, 2_000, 4_000),
}


class Course(NamedTuple):
    """What a conversation came to. Shares are of 1; tokens are estimates."""

    #: The context before each turn's first step, as a share of the budget.
    context: float
    #: What of it is messages, word for word.
    raw: float
    #: Turns after which something was summarised.
    swept: float
    #: What of the context had to be read anew at a step because something before it had changed.
    anew: float
    #: Summariser calls for a million tokens said, and what they read of each.
    calls: float
    read: float
    deepest: int


def course(parameters: ContextParameters, messages: int = MESSAGES, seed: int = 1) -> Course:
    """A conversation under these numbers, swept after each turn as one session is."""
    source = random.Random(seed)
    items: list[Item] = []
    said = calls = read = deepest = turns = swept = 0
    held = raw = anew = 0
    for turn in _turns(source, messages):
        turns += 1
        items += turn
        said += sum(item.tokens for item in turn)
        changed: int | None = None
        for _ in range(parameters.sweep_passes):
            made = plan(items, BUDGET, parameters, session_key="default:talk", epoch=0)
            if isinstance(made, Rest):
                break
            calls += 1
            read += made.source_tokens
            deepest = max(deepest, made.depth)
            place = _publish(items, made, source)
            changed = place if changed is None else min(changed, place)
        tokens = sum(item.tokens for item in items)
        held += tokens
        raw += sum(item.tokens for item in items if item.is_raw)
        if changed is not None:
            swept += 1
            anew += sum(item.tokens for item in items[changed:])
    return Course(
        context=held / turns / BUDGET,
        raw=raw / held,
        swept=swept / turns,
        anew=anew / held,
        calls=calls * 1_000_000 / said,
        read=read / said,
        deepest=deepest,
    )


def _turns(source: random.Random, messages: int) -> Iterator[list[Item]]:
    for first in range(1, messages + 1, A_TURN):
        yield [
            Item(
                f"m{seq}",
                seq,
                seq,
                min(14_000, int(source.lognormvariate(5.5, 1.6))) + 7,
                turn=first,
                role=Role.ASSISTANT if seq > first else Role.USER,
            )
            for seq in range(first, first + A_TURN)
        ]


def _publish(items: list[Item], made: Pass, source: random.Random) -> int:
    """Put a summary into the place of its sources; where that is."""
    place = next(index for index, item in enumerate(items) if item.id == made.sources[0])
    written = int(made.target * source.uniform(0.6, 1.2)) + SUMMARY_OVERHEAD
    items[place : place + len(made.sources)] = [
        Item(
            made.id,
            made.first_seq,
            made.last_seq,
            min(made.most_tokens, written),
            depth=made.depth,
            messages=made.messages,
        )
    ]
    return place


def main() -> None:
    """Print the table."""
    table = Table(title="One number changed, the others as they are")
    for name in ("number", "value", *Course._fields):
        table.add_column(name, justify="left" if name == "number" else "right")
    defaults = ContextParameters()
    for name, values in VARIED.items():
        for value in values:
            found = course(defaults.model_copy(update={name: value}))
            mark = "*" if value == getattr(defaults, name) else ""
            figures = [f"{figure:.2f}" for figure in found[:-1]]
            table.add_row(name, f"{value:g}{mark}", *figures, str(found.deepest))
        table.add_section()
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
