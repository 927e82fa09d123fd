"""From the tools that a server offers to a list that any model may be given.

Invariant: a list has a bounded size, its names are valid for every provider and each means one
tool. What is left out is told, with the reason.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from perdure.domain.sources import LeftOut, ListedTool, ToolList, named
from perdure.sources.schemas import LONGEST_DESCRIPTION, Unfit, clean, portable

#: Tools of one server. Models choose badly among more, and all of them stand in every prompt.
MOST_TOOLS = 128
#: Bytes of all of a list, as JSON.
LARGEST_LIST = 262_144
#: Characters of a tool's name: what every provider takes.
LONGEST_NAME = 64
#: Of what is left out, so many are told.
MOST_TOLD = 50


class Offered(NamedTuple):
    """A tool as a server offers it."""

    name: str
    description: str
    schema: dict[str, Any]
    read_only: bool = False
    idempotent: bool = False


def listing(server: str, offered: Iterable[Offered], allowed: Sequence[str]) -> ToolList:
    """The list of a server's tools, of those that match a pattern of `allowed`."""
    tools: dict[str, ListedTool] = {}
    left_out: list[LeftOut] = []
    room = LARGEST_LIST
    for one in offered:
        if not named(one.name, allowed):
            continue
        try:
            tool = _listed(server, one, tools)
            room -= len(tool.description.encode()) + len(json.dumps(tool.parameters))
            if room < 0:
                raise Unfit(f"the tools of a server may take {LARGEST_LIST} bytes in all")
        except Unfit as why:
            left_out.append(LeftOut(name=clean(one.name, LONGEST_NAME), reason=str(why)))
        else:
            tools[tool.called] = tool
    return ToolList(
        server=server, tools=tuple(tools.values()), left_out=tuple(left_out[:MOST_TOLD])
    )


def called_by(server: str, tool: str) -> str:
    """What models call a server's tool: `SERVER__TOOL`, in letters that every provider takes.

    A name that is too long is cut, and told from others by a digest of the whole.
    """
    name = f"{server}__{re.sub(r'[^A-Za-z0-9_-]', '_', tool)}"
    if len(name) <= LONGEST_NAME:
        return name
    digest = hashlib.sha256(tool.encode(errors="replace")).hexdigest()[:8]
    return f"{name[: LONGEST_NAME - 9]}_{digest}"


def _listed(server: str, one: Offered, taken: Mapping[str, ListedTool]) -> ListedTool:
    if not 0 < len(one.name) <= 256:
        raise Unfit("its name has not 1 to 256 characters")
    if not one.name.isprintable():
        raise Unfit("its name cannot be written")
    called = called_by(server, one.name)
    if called in taken:
        raise Unfit(f"its name, {called}, is that of {taken[called].name} too")
    if len(taken) == MOST_TOOLS:
        raise Unfit(f"a server may offer {MOST_TOOLS} tools")
    return ListedTool(
        name=one.name,
        called=called,
        description=clean(one.description, LONGEST_DESCRIPTION),
        parameters=portable(one.schema),
        read_only=one.read_only,
        idempotent=one.idempotent,
    )
