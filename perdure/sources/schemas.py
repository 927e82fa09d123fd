"""The schemas of arguments, from anyone's JSON schema to one that every provider takes.

Invariant: what comes out is well-formed, of bounded size and depth, and stands for itself: every
reference is replaced by what it refers to. A provider that chokes on a schema fails the whole
prompt, and with it the turn; so what cannot be had in this form is refused here.
"""

from __future__ import annotations

import json
import unicodedata
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

#: Bytes of a schema as JSON, with its references replaced.
LARGEST_SCHEMA = 16_384
#: How deep it may be nested.
DEEPEST_SCHEMA = 48
#: Characters of a description in it, or of a tool.
LONGEST_DESCRIPTION = 1_024

#: Where definitions lie that are referred to.
_DEFINITIONS = ("$defs", "definitions")
_INVISIBLE = ("Cc", "Cf", "Cs", "Co", "Cn")


class Unfit(ValueError):
    """A schema cannot be offered; the text says why."""


def portable(given: dict[str, Any]) -> dict[str, Any]:
    """The schema of a tool's arguments in a form that every provider takes. Where it contains
    itself, the inner one says no more than that anything may stand there: the server checks.

    Raises:
        Unfit: when there is no such form.
    """
    schema = _Inlining(given).done()
    schema.setdefault("type", "object")
    schema.setdefault("properties", {})
    if schema["type"] != "object" or not isinstance(schema["properties"], dict):
        raise Unfit("its arguments are not an object")
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise Unfit(f"its schema is wrong at {error.json_path}") from None
    except RecursionError:
        raise Unfit("its schema cannot be checked") from None
    return schema


def clean(text: str, limit: int) -> str:
    """`text` as a person would see it, cut: what is invisible may be there for models only."""
    seen = "".join(
        letter
        for letter in text[: limit * 4]
        if letter in "\n\t" or unicodedata.category(letter) not in _INVISIBLE
    ).strip()
    return seen if len(seen) <= limit else seen[: limit - 1] + "…"


def _text(text: str) -> str:
    """`text` without halves of surrogate pairs, which are no text anywhere else."""
    return text.encode(errors="replace").decode()


class _Inlining:
    """One schema on its way."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._given = given
        self._room = LARGEST_SCHEMA

    def done(self) -> dict[str, Any]:
        """The whole schema, inlined."""
        top = {key: part for key, part in self._given.items() if key not in _DEFINITIONS}
        changed = self._node(top, 0, frozenset())
        assert isinstance(changed, dict)
        return changed

    def _node(self, node: Any, depth: int, within: frozenset[str]) -> Any:
        if depth > DEEPEST_SCHEMA:
            raise Unfit(f"its schema is nested deeper than {DEEPEST_SCHEMA}")
        if isinstance(node, list):
            self._take(2)
            return [self._node(part, depth + 1, within) for part in node]
        if not isinstance(node, dict):
            self._take(len(json.dumps(node)))
            return _text(node) if isinstance(node, str) else node
        reference = node.get("$ref")
        if isinstance(reference, str):
            return self._referred(node, reference, depth, within)
        self._take(2 + sum(len(key) + 4 for key in node))
        return {_text(key): self._part(key, part, depth, within) for key, part in node.items()}

    def _part(self, key: str, part: Any, depth: int, within: frozenset[str]) -> Any:
        if key == "description" and isinstance(part, str):
            part = clean(part, LONGEST_DESCRIPTION)
        return self._node(part, depth + 1, within)

    def _referred(
        self, node: dict[str, Any], reference: str, depth: int, within: frozenset[str]
    ) -> Any:
        beside = {key: part for key, part in node.items() if key != "$ref"}
        if reference in within:
            return self._node(beside, depth + 1, within)
        target = self._at(reference)
        return self._node({**target, **beside}, depth + 1, within | {reference})

    def _at(self, reference: str) -> dict[str, Any]:
        target: Any = self._given if reference.startswith("#") else None
        for part in reference.split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            target = target.get(key) if isinstance(target, dict) else None
        if not isinstance(target, dict) or reference[1:2] not in ("", "/"):
            raise Unfit("its schema refers to what is not in it")
        return {key: part for key, part in target.items() if key not in _DEFINITIONS}

    def _take(self, size: int) -> None:
        self._room -= size
        if self._room < 0:
            raise Unfit(f"its schema has more than {LARGEST_SCHEMA} bytes")
