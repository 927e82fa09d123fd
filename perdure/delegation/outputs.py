"""The files that a child must leave behind, and the one chance to mend what it forgot.

Invariant: an output is verified only if it is a regular file inside the child's own workspace.
Outputs are files, not phrases of an answer: what an answer says, its reader judges.
"""

from __future__ import annotations

from collections.abc import Sequence

from perdure.delegation.framing import one_line
from perdure.domain.errors import InvalidArgument, LimitExceeded, PerdureError
from perdure.domain.messages import Frozen
from perdure.workspace import Workspace
from perdure.workspace.paths import MAX_NAME_BYTES, MAX_PATH_BYTES, quoted

#: Files that one child may be asked for; a repair turn that names them all is still read.
MOST_OUTPUTS = 50

_WHAT = (
    "expected_outputs are files that the child writes, relative to its workspace, as in "
    "report.md or data/prices.csv."
)


class Outputs(Frozen):
    """Of the outputs that were expected, those that are there and those that are not."""

    verified: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def expected(paths: Sequence[str]) -> tuple[str, ...]:
    """The outputs to expect, each once, in their order, spelt without `./` and the like.

    Raises:
        InvalidArgument: naming every one that cannot be a file of a workspace, and why.
        LimitExceeded: there are more than `MOST_OUTPUTS`.
    """
    if len(paths) > MOST_OUTPUTS:
        raise LimitExceeded(
            f"{len(paths)} expected_outputs were given; the limit is {MOST_OUTPUTS}.",
            "Name the files that matter.",
        )
    wrong = [
        f"{quoted(path)} {reason}." for path in paths if (reason := _no_file(path)) is not None
    ]
    if wrong:
        raise InvalidArgument(f"Nothing was spawned. {' '.join(wrong)}", _WHAT)
    return tuple(dict.fromkeys("/".join(_names(path)) for path in paths))


def check(workspace: Workspace, outputs: Sequence[str]) -> Outputs:
    """Which of the `outputs` are in the child's workspace. Never raises; reads the file system."""
    there = {path: _fault(workspace, path) is None for path in outputs}
    return Outputs(
        verified=tuple(path for path, found in there.items() if found),
        missing=tuple(path for path, found in there.items() if not found),
    )


def repair(workspace: Workspace, missing: Sequence[str]) -> str:
    """What a child is told, once, when it said that it was done and `missing` are not there."""
    lines = [
        f"- {one_line(path, MAX_PATH_BYTES)}: {_fault(workspace, path) or 'it is there by now'}"
        for path in missing
    ]
    count = "one of them is" if len(missing) == 1 else f"{len(missing)} of them are"
    return (
        f"You said that you are done, but you were asked for files and {count} missing:\n"
        + "\n".join(lines)
        + "\n\nWrite what is missing now, under exactly these paths in your workspace, and then "
        "give your whole answer again: it replaces the last one. You are not asked another time. "
        "If a file cannot be made, say why."
    )


def _fault(workspace: Workspace, path: str) -> str | None:
    """Why `path` is not a file of the workspace; None if it is one."""
    try:
        workspace.file_size(path)
    except PerdureError as error:
        return error.message
    return None


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]


def _no_file(path: str) -> str | None:
    names = _names(path)
    if not names or path.endswith("/"):
        return "names a folder, not a file"
    if path.startswith(("/", "~")):
        return "is not relative to the workspace"
    if ".." in names:
        return "leads out of the workspace"
    if any(character in path for character in "*?\0\n\r"):
        return "is not one file's path: patterns and line ends cannot be checked"
    if not path.isprintable():
        return "holds characters that cannot be shown"
    if len(path.encode()) > MAX_PATH_BYTES or max(len(n.encode()) for n in names) > MAX_NAME_BYTES:
        return f"is longer than {MAX_PATH_BYTES} bytes, or one of its names than {MAX_NAME_BYTES}"
    if " " in path and "/" not in path and "." not in path:
        return "reads like a sentence, not like a path"
    return None
