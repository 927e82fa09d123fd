"""The group "files": reading and changing a session's own workspace.

Invariant: every path in these tools is relative to the workspace; `perdure.workspace` keeps it
so. The text here is what a language model reads.
"""

from __future__ import annotations

from pydantic import Field

from perdure.domain.steps import Lane
from perdure.tools.spec import Arguments, Effect, ToolSpec

GROUP = "files"

#: Seconds. File sizes, listings and searches are all bounded well below this.
_TIMEOUT = 30.0


class Read(Arguments):
    """Arguments of `read`."""

    path: str = Field(description="File, relative to the workspace.")
    start_line: int = Field(1, ge=1, description="First line, from 1.")
    end_line: int | None = Field(None, ge=1, description="Last line, included. Default: the end.")
    start_column: int = Field(
        1, ge=1, description="First character of start_line; only to go on inside a very long line."
    )


class Write(Arguments):
    """Arguments of `write`."""

    path: str = Field(description="File, relative to the workspace.")
    content: str = Field(description="The whole new content.")


class Edit(Arguments):
    """Arguments of `edit`."""

    path: str = Field(description="File, relative to the workspace.")
    old: str = Field(min_length=1, description="Exact text to replace; must occur exactly once.")
    new: str = Field(description="Text to put in its place.")


class Ls(Arguments):
    """Arguments of `ls`."""

    path: str = Field(".", description="Folder, relative to the workspace.")
    offset: int = Field(0, ge=0, description="Entries to skip, to see the next page.")


class Grep(Arguments):
    """Arguments of `grep`."""

    pattern: str = Field(min_length=1, description="Regular expression in RE2 syntax.")
    path: str = Field(".", description="File or folder, relative to the workspace.")


SPECS = (
    ToolSpec(
        name="read",
        description=(
            "Read a text file of the workspace, or a range of its lines. Long files come in "
            "windows: when truncated is true, go on with start_line = end_line + 1."
        ),
        group=GROUP,
        parameters=Read,
        lane=Lane.LOCAL,
        effect=Effect.READ,
        timeout=_TIMEOUT,
    ),
    ToolSpec(
        name="write",
        description=(
            "Write a text file of the workspace, replacing it if it exists. Missing folders are "
            "made. To change part of a file, use edit."
        ),
        group=GROUP,
        parameters=Write,
        lane=Lane.LOCAL,
        effect=Effect.IDEMPOTENT,
        timeout=_TIMEOUT,
    ),
    ToolSpec(
        name="edit",
        description=(
            "Replace one piece of text in a file of the workspace. old must be copied exactly "
            "from the file and occur once; add neighbouring lines to make it unique."
        ),
        group=GROUP,
        parameters=Edit,
        lane=Lane.LOCAL,
        effect=Effect.ONCE,
        timeout=_TIMEOUT,
    ),
    ToolSpec(
        name="ls",
        description="List a folder of the workspace: names, types and sizes in bytes.",
        group=GROUP,
        parameters=Ls,
        lane=Lane.LOCAL,
        effect=Effect.READ,
        timeout=_TIMEOUT,
    ),
    ToolSpec(
        name="grep",
        description=(
            "Find the lines that match a regular expression (RE2: no look-around, no "
            "back-references) in a file, or in all files under a folder, of the workspace."
        ),
        group=GROUP,
        parameters=Grep,
        lane=Lane.LOCAL,
        effect=Effect.READ,
        timeout=_TIMEOUT,
    ),
)
