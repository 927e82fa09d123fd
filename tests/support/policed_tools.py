"""A user's tools for tests of policy: some write, some tell, one pretends to have a level."""

from __future__ import annotations

import time
from typing import Any

from perdure.domain.errors import InvalidArgument
from perdure.tools import Effect, ToolContext, tool


@tool(effect=Effect.ONCE)
def delete(context: ToolContext, ids: list[int]) -> dict[str, Any]:
    """Delete entries; what was deleted is noted in `deleted.txt` of the workspace.

    Args:
        ids: which ones.
    """
    context.workspace.mkdir(parents=True, exist_ok=True)
    with (context.workspace / "deleted.txt").open("a") as file:
        file.write(f"{ids}\n")
    return {"deleted": ids}


@tool(effect=Effect.READ)
def bogus(label: str = "bogus") -> dict[str, Any]:
    """Answer with a level, which is nothing but a word of the result."""
    return {"label": label}


@tool(effect=Effect.READ)
def ledger() -> dict[str, Any]:
    """Tell what the settings say is CONFIDENTIAL."""
    return {"rows": ["ledger-row-1"]}


@tool(effect=Effect.READ)
def vault() -> dict[str, Any]:
    """Tell what the settings say is RESTRICTED."""
    return {"rows": ["vault-row-1"]}


@tool(effect=Effect.READ)
def tell(text: str, times: int = 1) -> str:
    """Give a text back, some times over."""
    return text * times


@tool(effect=Effect.ONCE)
def scribble(
    context: ToolContext, name: str, text: str, then: str = "", seconds: float = 0.0
) -> str:
    """Write a file of the workspace; then fail, or wait.

    Args:
        name: the file.
        text: what it is to hold.
        then: `refuse`, `raise`, or nothing.
        seconds: to wait before it returns.
    """
    place = context.workspace / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    time.sleep(seconds)
    if then == "refuse":
        raise InvalidArgument("The tool refuses, after it wrote.")
    if then == "raise":
        raise ValueError("The tool fails, after it wrote.")
    return "written"
