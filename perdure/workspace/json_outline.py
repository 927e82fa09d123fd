"""What is in a JSON value: its keys, types, lengths and ranges, and a small piece of it.

Invariant: pure, and bounded whatever the value holds: in lines, in depth and in the elements that
are looked at. What was not looked at is said.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from itertools import islice

from pydantic import JsonValue

#: Elements of all arrays at one place that are looked at; others are of the same kind, as a rule.
_ELEMENTS = 1_000
#: Keys of one object that are named; an object with more is a map, whose keys are data.
_KEYS = 40
_DEPTH = 6
_LINES = 200
_NAME_CHARACTERS = 60

#: The sample: its own length, the characters of each string and the elements of each array (the
#: first pair that lets it fit), the keys of each object, levels.
_SAMPLE = 4_000
_SAMPLE_SIZES = ((3_600, 10), (800, 5), (200, 2), (80, 2))
_SAMPLE_KEYS = 20
_SAMPLE_DEPTH = 4

_PLAIN_KEY = re.compile(r"[A-Za-z_][\w-]*")


def shape(values: Sequence[JsonValue]) -> list[str]:
    """The shape that all of `values` have, as indented lines; `key?` is in some objects only."""
    lines = _shape(values, "", "", 0)
    if len(lines) > _LINES:
        lines = [*lines[:_LINES], f"… and {len(lines) - _LINES} more lines of shape"]
    return lines


def sample(value: JsonValue) -> str:
    """A small piece of `value`, as JSON on one line with `…` for what was left out."""
    for characters, elements in _SAMPLE_SIZES:
        written = json.dumps(_piece(value, characters, elements, 0), ensure_ascii=False)
        if len(written) <= _SAMPLE:
            return written
    return f"{written[:_SAMPLE]}…"


def _shape(values: Sequence[JsonValue], name: str, indent: str, depth: int) -> list[str]:
    objects = [value for value in values if isinstance(value, dict)]
    arrays = [value for value in values if isinstance(value, list)]
    words = [*_plain(values)]
    if arrays:
        words.append(f"array of {_span([len(value) for value in arrays], 'element')}")
    if objects:
        words.append(_object_words(objects))
    lines = [f"{indent}{name}{': ' if name else ''}{' | '.join(words) or 'nothing'}"]
    if depth >= _DEPTH:
        return lines
    inner = indent + "  "
    elements = list(islice((one for array in arrays for one in array), _ELEMENTS))
    if elements:
        lines += _shape(elements, "[]", inner, depth + 1)
    if not objects:
        return lines
    keys = _keys(objects)
    if len(keys) > _KEYS:
        members = islice((one for value in objects for one in value.values()), _ELEMENTS)
        return lines + _shape(list(members), "{}", inner, depth + 1)
    for key in keys:
        # One place cannot take all lines: an object of objects has as many as their product.
        if len(lines) > _LINES:
            break
        found = [value[key] for value in objects if key in value]
        optional = "?" if len(found) < len(objects) else ""
        lines += _shape(found, f"{_key(key)}{optional}", inner, depth + 1)
    return lines


def _plain(values: Sequence[JsonValue]) -> Iterable[str]:
    """Words for what is neither an array nor an object."""
    texts = [value for value in values if isinstance(value, str)]
    truths = [value for value in values if isinstance(value, bool)]
    numbers = [
        value for value in values if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    if texts:
        yield f"string of {_span([len(text) for text in texts], 'character')}"
    if numbers:
        whole = all(isinstance(number, int) for number in numbers)
        yield f"{'integer' if whole else 'number'} {_range(numbers)}"
    if truths:
        yield "boolean" if len(set(truths)) > 1 else json.dumps(truths[0])
    if any(value is None for value in values):
        yield "null"


def _object_words(objects: Sequence[dict[str, JsonValue]]) -> str:
    keys = _keys(objects)
    if len(keys) <= _KEYS:
        return "object"
    named = ", ".join(_key(key) for key in keys[:3])
    return f"object of {_span([len(value) for value in objects], 'key')}: {named}, …"


def _keys(objects: Sequence[dict[str, JsonValue]]) -> list[str]:
    return list(dict.fromkeys(key for value in objects for key in value))


def _key(key: str) -> str:
    if len(key) > _NAME_CHARACTERS:
        key = f"{key[:_NAME_CHARACTERS]}…"
    return key if _PLAIN_KEY.fullmatch(key) else json.dumps(key, ensure_ascii=False)


def _span(sizes: Sequence[int], unit: str) -> str:
    low, high = min(sizes), max(sizes)
    if low == high:
        return f"{low} {unit}{'' if low == 1 else 's'}"
    return f"{low} to {high} {unit}s"


def _range(numbers: Sequence[int | float]) -> str:
    low, high = min(numbers), max(numbers)
    return _number(low) if low == high else f"{_number(low)} to {_number(high)}"


def _number(number: int | float) -> str:
    # More digits than Python writes by itself, and than anyone reads.
    if isinstance(number, int) and abs(number) >= 10**30:
        return f"{'-' if number < 0 else ''}(about {number.bit_length() * 3 // 10} digits)"
    return repr(number)


def _piece(value: JsonValue, characters: int, elements: int, depth: int) -> JsonValue:
    if isinstance(value, str):
        return f"{value[:characters]}…" if len(value) > characters else value
    if isinstance(value, int) and abs(value) >= 10**30:
        return _number(value)
    if not isinstance(value, list | dict):
        return value
    if depth >= _SAMPLE_DEPTH:
        return "…" if value else value
    if isinstance(value, list):
        shown = value[:elements]
        piece: list[JsonValue] = [_piece(one, characters, elements, depth + 1) for one in shown]
        return [*piece, "…"] if len(value) > elements else piece
    keys = islice(value, _SAMPLE_KEYS)
    kept = {_name(key): _piece(value[key], characters, elements, depth + 1) for key in keys}
    return {**kept, "…": "…"} if len(value) > _SAMPLE_KEYS else kept


def _name(key: str) -> str:
    return f"{key[:_NAME_CHARACTERS]}…" if len(key) > _NAME_CHARACTERS else key
