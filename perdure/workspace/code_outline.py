"""What is in a source file or a document: its definitions or headings, with their lines.

Invariant: pure, and total whatever the text holds. Each entry begins with the number of its line,
so that `read` goes straight to it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

import re2  # type: ignore[import-untyped]

#: Larger Python files are outlined by their lines, like other languages.
_MOST_PARSED = 1_000_000
#: Entries of an outline; it is for finding one's way, not for reading.
_ENTRIES = 300
_ENTRY_CHARACTERS = 120
#: Definitions without which a text of unknown name is not taken for code, and lines for each.
_FEWEST = 3
_LINES_EACH = 100

_PYTHON_NAME = re.compile(r".*\.pyi?", re.IGNORECASE)
_PYTHON_LINE = re.compile(r"^[ \t]*(?:async +)?(?:def|class) +\w+ *[(:]", re.MULTILINE)
_CODE_NAME = re.compile(
    r".*\.(?:c|cc|cpp|cs|cxx|dart|ex|exs|go|h|hpp|java|jsx?|kt|kts|lua|mjs|php|pl|ps1|r|rb|rs|scala"
    r"|sh|sql|swift|tsx?|vue|zig)",
    re.IGNORECASE,
)
_MARKDOWN_NAME = re.compile(r".*\.(?:markdown|md|mdx|rst)", re.IGNORECASE)
_HEADING = re.compile(r"#{1,6} \S.{0,200}")
_FENCE = re.compile(r"(?:```|~~~)")

#: Words before a definition that belong to it.
_BEFORE = (
    r"(?:(?:export|default|declare|abstract|public|private|protected|internal|static|final|sealed"
    r"|async|unsafe|extern|inline|virtual|override|open|data|pub(?:\([a-z]{1,9}\))?) +){0,6}"
)
#: What may follow the name in a definition; in a sentence other words do.
_AFTER = (
    r"(?:| *[({:<\[;=!].{0,200}"
    r"| +(?:extends|implements|for|where|is|do|with|from|returns|struct|interface)\b.{0,200})"
)
#: A definition as most languages write one, at most so deep that it is not a local. By RE2, which
#: no line can slow down.
_DEFINITION = re2.compile(
    rf"[ \t]{{0,8}}{_BEFORE}"
    r"(?:"
    r"(?:function\*?|func|fn|fun|def|sub|class|interface|struct|enum|trait|impl|module|namespace"
    r"|object|protocol|record|defmodule|defp|type|macro_rules!)"
    # With a receiver or type parameters before the name, as in Go and Rust.
    rf"(?: *[(<][^()]{{0,80}}[)>])? +[\w$.:~?]{{1,120}}{_AFTER}"
    r"|(?:const|let|var) +[\w$]+ *= *(?:async *)?(?:function\b|\([^()]{0,200}\) *=>).{0,100}"
    r"|CREATE +(?:OR +REPLACE +)?(?:TEMP(?:ORARY)? +)?"
    r"(?:TABLE|VIEW|INDEX|FUNCTION|PROCEDURE|TRIGGER) .{0,200}"
    r"|(?:[\w<>\[\]*&:]{1,80} +){1,3}[*&]?[\w:~]{1,80}\([^;=]{0,200}\)[ \w]{0,40}\{"
    r")",
)
_SQL = re.compile(r"[ \t]*create ", re.IGNORECASE)
#: Statements that look like a definition with a type in front.
_NO_DEFINITION = re2.compile(
    r"\s*(?:return|else|if|for|while|switch|case|throw|new|await|yield|print|and|or|in|not|do)\b"
)


def outline(text: str, name: str = "") -> tuple[str, list[str]] | None:
    """What kind of source `text` is, and its entries; None if it has none worth telling.

    `name` is the file's, where it has one that says something.
    """
    if _PYTHON_NAME.fullmatch(name) or (not _named(name) and _PYTHON_LINE.search(text)):
        entries = _python(text)
        if entries:
            return "Python", _limited(entries)
    lines = text.splitlines()
    if _MARKDOWN_NAME.fullmatch(name):
        entries = list(_headings(lines))
        return ("document", _limited(entries)) if entries else None
    known = _CODE_NAME.fullmatch(name) is not None
    if known or not _named(name):
        entries = list(_definitions(lines))
        if entries and (known or len(entries) >= max(_FEWEST, len(lines) // _LINES_EACH)):
            return "source code", _limited(entries)
    if not _named(name):
        entries = list(_headings(lines))
        if len(entries) >= max(_FEWEST, len(lines) // _LINES_EACH):
            return "document", _limited(entries)
    return None


def _named(name: str) -> bool:
    """Whether a name says what its file is. Ours for results ends in .txt, and says nothing."""
    return "." in name and not name.lower().endswith(".txt")


def _limited(entries: Sequence[str]) -> list[str]:
    shown = [entry[:_ENTRY_CHARACTERS] for entry in entries[:_ENTRIES]]
    if len(entries) > _ENTRIES:
        shown.append(f"… and {len(entries) - _ENTRIES} more")
    return shown


def _python(text: str) -> list[str]:
    if len(text) > _MOST_PARSED:
        return []
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return list(_python_entries(tree.body, ""))


def _python_entries(body: Sequence[ast.stmt], indent: str) -> Iterator[str]:
    for node in body:
        match node:
            case ast.ClassDef():
                bases = ", ".join(filter(None, map(_source, node.bases)))
                yield f"{node.lineno}: {indent}class {node.name}{f'({bases})' if bases else ''}"
                if len(indent) < 8:
                    yield from _python_entries(node.body, indent + "  ")
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                word = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
                yield f"{node.lineno}: {indent}{word} {node.name}({_source(node.args)})"


def _source(node: ast.AST) -> str:
    try:
        return ast.unparse(node)
    except (RecursionError, ValueError):
        return "…"


def _definitions(lines: Sequence[str]) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        if len(line) > 400 or _NO_DEFINITION.match(line):
            continue
        found = line.upper() if _SQL.match(line) else line
        if _DEFINITION.fullmatch(found.rstrip()):
            yield f"{number}: {line.rstrip()}"


def _headings(lines: Sequence[str]) -> Iterator[str]:
    fenced = False
    for number, line in enumerate(lines, 1):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced and _HEADING.fullmatch(line.rstrip()):
            yield f"{number}: {line.rstrip()}"
