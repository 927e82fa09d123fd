"""The demo's own tools, written as any user's tool is: plain functions, slow on purpose.

Invariant: `post_notice` leaves one line a run on the board, with the key of its call. So whether
an effect happened once can be read off the effect itself, whatever the store says of it.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from perdure.tools import Effect, ToolContext, tool

#: The board, in the session's workspace: one JSON object a line.
BOARD = "notices.jsonl"
INDEX = "index.json"

#: Seconds that both tools take after their effect, and before they report it: time to be killed.
SLOW = 2.0


@tool(group="demo", effect=Effect.ONCE, timeout=60)
def post_notice(context: ToolContext, text: str) -> dict[str, Any]:
    """Post a notice on the board, for everybody to read. A second call posts a second notice.

    Args:
        text: what the notice says.
    """
    board = context.workspace / BOARD
    line = json.dumps({"call": context.idempotency_key, "text": text}, ensure_ascii=False)
    with board.open("a", encoding="utf-8") as file:
        file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())
    time.sleep(SLOW)
    return {"posted": True, "notices": len(posted(context.workspace))}


@tool(group="demo", effect=Effect.IDEMPOTENT, timeout=60)
def index_documents(context: ToolContext) -> dict[str, Any]:
    """Write index.json: the lines, the words and the title of every document of the workspace."""
    documents = []
    for path in sorted(context.workspace.rglob("*.md")):
        text = path.read_text("utf-8", errors="replace")
        titles = [line[2:].strip() for line in text.splitlines() if line.startswith("# ")]
        documents.append(
            {
                "path": path.relative_to(context.workspace).as_posix(),
                "lines": text.count("\n"),
                "words": len(text.split()),
                "title": titles[0] if titles else "",
            }
        )
    draft = context.workspace / f"{INDEX}.tmp"
    draft.write_text(json.dumps(documents, indent=1, ensure_ascii=False) + "\n", "utf-8")
    draft.replace(context.workspace / INDEX)
    time.sleep(SLOW)
    return {"documents": len(documents), "words": sum(each["words"] for each in documents)}


def posted(workspace: Path) -> list[str]:
    """The call that each notice on a workspace's board came from, in the order of the board."""
    board = workspace / BOARD
    if not board.exists():
        return []
    return [json.loads(line)["call"] for line in board.read_text("utf-8").splitlines()]
