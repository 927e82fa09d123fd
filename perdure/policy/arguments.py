"""The texts inside a tool's arguments, wherever they are nested.

Invariant: keys are texts too. A text comes with the name that introduces it: the key it is the
value of, or the option before it in a command line given as a list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from pydantic import JsonValue


def texts_of(arguments: Mapping[str, JsonValue]) -> Iterator[tuple[str | None, str]]:
    """Every text with its name, in the order of the arguments."""
    waiting: list[tuple[str | None, JsonValue]] = [(None, dict(arguments))]
    while waiting:
        name, node = waiting.pop()
        if isinstance(node, str):
            yield name, node
        elif isinstance(node, dict):
            inside: list[tuple[str | None, JsonValue]] = []
            for key, value in node.items():
                inside += [(None, key), (key, value)]
            waiting += reversed(inside)
        elif isinstance(node, list):
            waiting += reversed([(_option(node, index), one) for index, one in enumerate(node)])


def map_texts(
    arguments: Mapping[str, JsonValue], change: Callable[[str | None, str], str]
) -> dict[str, JsonValue]:
    """`arguments` with `change(name, text)` in the place of every text.

    Of two keys that become the same, the later value stays.
    """
    return {change(None, key): _mapped(key, value, change) for key, value in arguments.items()}


def _mapped(
    name: str | None, node: JsonValue, change: Callable[[str | None, str], str]
) -> JsonValue:
    if isinstance(node, str):
        return change(name, node)
    if isinstance(node, dict):
        return map_texts(node, change)
    if isinstance(node, list):
        return [_mapped(_option(node, index), one, change) for index, one in enumerate(node)]
    return node


def _option(items: list[JsonValue], index: int) -> str | None:
    before = items[index - 1] if index else None
    return before if isinstance(before, str) and before.startswith("-") else None
