"""The documents are true: what they name exists, and what they tell you to type works.

Blocks of README.md that follow a `<!-- run: … -->` line are run as they stand, in a shell and on a
stack of their own; every other `perdure` command line must be one that the real CLI understands.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import typer
from typer.main import get_command

from gateway.cli import app
from gateway.local import StackInfo, find_stack
from tests.support.processes import eventually, running_on

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

_BLOCK = re.compile(r"(?:<!-- run: ([a-z ]+) -->\n)?```(sh|python)\n(.*?)```", re.DOTALL)
_LINK = re.compile(r"\]\((?!https?://|#)([^)#\s]+)")
_TEST = re.compile(r"(?:tests/)?((?:promises/)?test_\w+\.py)::(test_\w+)")
_ASSIGNMENT = re.compile(r"\w+=.*")


def blocks(run: str | None = None) -> list[tuple[str, str]]:
    """The language and the text of README's code blocks, those marked `run` if it is given."""
    text = DOCUMENTS[0].read_text("utf-8")
    return [(kind, code) for mark, kind, code in _BLOCK.findall(text) if run in (None, mark)]


def command_lines() -> Iterator[list[str]]:
    """Every `perdure …` in the shell blocks of all documents, without what stands before it."""
    for document in DOCUMENTS:
        for _, kind, code in _BLOCK.findall(document.read_text("utf-8")):
            line: list[str] = []
            for word in [*_words(code), "\n"] if kind == "sh" else ():
                if word.strip("\n"):
                    line.append(word)
                    continue
                while line and _ASSIGNMENT.fullmatch(line[0]):
                    line.pop(0)
                if line[:1] == ["perdure"]:
                    yield line[1:]
                line = []


def _words(code: str) -> Iterator[str]:
    """The words of a shell block, and its line ends; a quoted word may go over several lines."""
    lexer = shlex.shlex(code.replace("\\\n", " "), posix=True, punctuation_chars="\n")
    lexer.whitespace, lexer.whitespace_split = " \t", True
    return iter(lexer)


# What is named exists --------------------------------------------------------------------------


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_linked_file_exists(document: Path) -> None:
    links = _LINK.findall(document.read_text("utf-8"))
    missing = [link for link in links if not (document.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_test_that_is_named_exists(document: Path) -> None:
    missing = []
    for file, name in _TEST.findall(document.read_text("utf-8")):
        path = ROOT / "tests" / file
        found = path.is_file() and re.search(rf"^(async )?def {name}\(", path.read_text(), re.M)
        if not found:
            missing.append(f"{file}::{name}")
    assert missing == []


def test_every_row_of_failures_names_a_test() -> None:
    text = (ROOT / "docs" / "failures.md").read_text("utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ") and "---" not in line]
    rows = [row for row in rows if not row.startswith("| failure |")]
    assert len(rows) > 30
    assert [row for row in rows if not _TEST.search(row)] == []


def test_every_command_line_is_one_that_the_cli_understands() -> None:
    group = get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    lines = list(command_lines())
    assert len(lines) > 12
    for name, *arguments in lines:
        command = group.commands[name]
        command.make_context(name, arguments)


def test_the_first_thing_in_the_readme_is_the_two_commands() -> None:
    lines = DOCUMENTS[0].read_text("utf-8").splitlines()
    first = lines.index("```sh")
    assert first < 5
    assert [line.split("#")[0].strip() for line in lines[first + 1 : first + 3]] == [
        "make demo",
        "make test",
    ]
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.M)
    assert {"demo", "test", "setup"} <= set(targets)


# What is to be typed works -----------------------------------------------------------------------


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """The environment of a reader who has activated the project's Python, in a new folder."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, start in (("perdure", "-P -m gateway.cli"), ("python", "")):
        (folder / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {start} "$@"\n')
        (folder / name).chmod(0o755)
    environ = {name: os.environ[name] for name in os.environ if not name.startswith("PERDURE_")}
    return {
        **environ,
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "PERDURE_HOME": str(tmp_path / "home"),
        "PYTHONPATH": str(ROOT),
    }


@asynccontextmanager
async def typed(code: str, folder: Path, environ: dict[str, str]) -> AsyncIterator[Process]:
    """A shell that runs `code` in `folder`; nothing of it is left afterwards."""
    process = await asyncio.create_subprocess_exec(
        *("bash", "-euc", code),
        cwd=folder,
        env=environ,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=PIPE,
        stderr=STDOUT,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            os.killpg(process.pid, 15)
        await process.communicate()


async def output(code: str, folder: Path, environ: dict[str, str]) -> str:
    """What `code` prints, if it succeeds."""
    async with typed(code, folder, environ) as process:
        told = (await process.communicate())[0].decode()
    assert process.returncode == 0, told
    return told


@asynccontextmanager
async def up(code: str, folder: Path, environ: dict[str, str]) -> AsyncIterator[StackInfo]:
    """`perdure up`, as `code` has it, until the block ends."""
    home = Path(environ["PERDURE_HOME"])
    async with typed(code, folder, environ) as process:
        await eventually(lambda: find_stack(home) or process.returncode is not None)
        info = find_stack(home)
        assert info is not None, (await process.communicate())[0].decode()
        yield info
    await eventually(lambda: running_on(home) == [])


async def test_the_tour_of_the_readme_works(tmp_path: Path, shell: dict[str, str]) -> None:
    """In the order of its blocks; those for a second terminal while the first one runs."""
    assert "perdure.toml" in await output(blocks("setup")[0][1], tmp_path, shell)
    async with up(blocks("up")[0][1], tmp_path, shell) as info:
        assert info.gateway is not None
        reader = {**shell, "GATEWAY": info.gateway}
        told = [await output(code, tmp_path, reader) for _, code in blocks("talk")]
        assert "plan.md is written, 6 bytes." in told[0]
        assert "sent before" in told[1]
        assert told[1].splitlines()[-1] == "Once."
        assert "Over HTTP." in told[2]
        assert re.search(r"label +CONFIDENTIAL", told[3])
        assert "The trail is whole" in told[3]
        assert "PRE_TOOL_CALL" in told[4]
        (tmp_path / "ask.py").write_text(blocks("python")[0][1])
        assert "From Python." in await output("python ask.py", tmp_path, shell)
        page = await output("perdure history default:me --json", tmp_path, shell)
        assert page.count("/say Once.") == 1


async def test_the_tool_of_the_readme_works(tmp_path: Path, shell: dict[str, str]) -> None:
    (tmp_path / "my_tools.py").write_text(blocks("tool")[0][1])
    code = blocks("up with the tool")[0][1]
    # A reader has Perdure installed; here it is found by the path as well.
    code = code.replace("PYTHONPATH=.", f"PYTHONPATH=.:{ROOT}")
    async with up(code, tmp_path, shell):
        told = await output(blocks("use the tool")[0][1], tmp_path, shell)
    assert re.search(r"You rolled \d+\.", told)
