"""What commands write: JSON for scripts on stdout, text for people, notes on stderr.

Invariant: a line of JSON is a whole document, and is on its way when the function returns.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping

from pydantic import BaseModel
from rich.console import Console


def print_json(value: BaseModel | Mapping[str, object]) -> None:
    """Write `value` to stdout as one line of JSON, at once."""
    if isinstance(value, BaseModel):
        print(value.model_dump_json(), flush=True)
    else:
        print(json.dumps(value, ensure_ascii=False), flush=True)


def note(text: str) -> None:
    """Tell the person at the terminal something beside the result."""
    print(text, file=sys.stderr, flush=True)


def console() -> Console:
    """Where text for people is written. Markup is off: what is shown may hold brackets."""
    return Console(markup=False, highlight=False, soft_wrap=True)
