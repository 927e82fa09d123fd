"""Another's words inside ours: framed, so that a reader can tell where they begin and end.

Invariant: pure and total. Whatever the text holds, it cannot end its own frame, nor begin one.
"""

from __future__ import annotations

import re

#: A tag as a model would take it, however it is spaced.
_TAG = r"<(?=[\s/]*{tag}\b)"
#: What the rehearsal model takes for a directive: `/name`, alone or followed by its arguments.
_DIRECTIVE = re.compile(r"/[A-Za-z_][A-Za-z0-9_.-]*(\s.*)?", re.DOTALL)
#: Lines that stand for something in a message between sessions.
_FRAME = re.compile(r"-{3,}|\[[^\]\n]{1,40}:.*", re.DOTALL)


def enclosed(tag: str, text: str, source: str = "") -> str:
    """`text` between `<tag>` and `</tag>` on lines of their own, with its `source` in the first.

    The same tag within the text begins with `&lt;`; all else is left as it is.
    """
    safe = re.sub(_TAG.format(tag=re.escape(tag)), "&lt;", text, flags=re.IGNORECASE)
    named = f' from="{_attribute(source)}"' if source else ""
    return f"<{tag}{named}>\n{safe}\n</{tag}>"


def quoted_lines(text: str) -> str:
    r"""`text` with a backslash before each line that could be taken for a part of a message's
    frame (`---`, `[Subagent Result: …]`) or for a directive (`/name …`).

    Lines that have such backslashes already get one more, so nothing is lost.
    """
    return "".join(map(_quoted_line, text.splitlines(keepends=True)))


def one_line(text: str, limit: int) -> str:
    """`text` as it may stand inside a line of ours, in at most `limit` characters."""
    words = " ".join(text.split())
    return words if len(words) <= limit else f"{words[: limit - 1]}…"


def _quoted_line(line: str) -> str:
    start = len(line) - len(line.lstrip())
    said = line.strip().lstrip("\\")
    if not (_DIRECTIVE.fullmatch(said) or _FRAME.fullmatch(said)):
        return line
    return f"{line[:start]}\\{line[start:]}"


def _attribute(text: str) -> str:
    words = " ".join(text.split())
    return words.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
