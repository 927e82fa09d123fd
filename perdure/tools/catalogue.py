"""The catalogue: what tools exist, and which of them an agent's `tools` setting means.

Invariant: in one toolbox a name means one tool. Selecting only built-in tools imports nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from perdure.domain.errors import Conflict, InvalidArgument
from perdure.domain.sources import SourceRef, read_reference
from perdure.tools import context, files, memory, message, messaging, policy, sessions, subagents
from perdure.tools.spec import ToolSpec, shown
from perdure.tools.user import UserTool, discover, is_reference, load

#: Every tool that Perdure itself brings, by name.
BUILTIN: dict[str, ToolSpec] = {
    spec.name: spec
    for specs in (
        *(files.SPECS, message.SPECS, policy.SPECS, sessions.SPECS),
        *(messaging.SPECS, subagents.SPECS, context.SPECS, memory.SPECS),
    )
    for spec in specs
}


@dataclass(frozen=True)
class Toolbox:
    """The tools of one agent: all specs by name, the functions of those that are users', and the
    MCP servers that bring more, each turn anew."""

    specs: dict[str, ToolSpec] = field(default_factory=dict)
    users: dict[str, UserTool] = field(default_factory=dict)
    sources: tuple[SourceRef, ...] = ()


def groups(specs: Mapping[str, ToolSpec] = BUILTIN) -> dict[str, tuple[str, ...]]:
    """The names of the tools of each group, in the order of `specs`."""
    found: dict[str, tuple[str, ...]] = {}
    for spec in specs.values():
        found[spec.group] = (*found.get(spec.group, ()), spec.name)
    return found


def select(names: Sequence[str]) -> Toolbox:
    """The toolbox that an agent's `tools` setting names.

    An entry is, in this order: an MCP server (`mcp:NAME`) or a tool of one (`mcp:NAME/TOOL`), a
    built-in group or tool, a `module:function`, a group or a tool of the installed packages.
    Naming a tool twice is the same as once. References and packages are imported, so the entries
    must come from settings, and workflows must not call this.

    Raises:
        InvalidArgument: an entry names nothing that exists, or a tool that cannot be loaded.
        Conflict: two different tools have one name.
    """
    specs: dict[str, ToolSpec] = {}
    users: dict[str, UserTool] = {}
    sources: dict[SourceRef, None] = {}
    installed: dict[str, UserTool] | None = None
    for name in names:
        source = read_reference(name)
        if source is not None:
            sources.setdefault(source)
            continue
        if name in BUILTIN or name in groups():
            for member in groups().get(name, (name,)):
                _add(specs, BUILTIN[member], same=specs.get(member) is BUILTIN[member])
            continue
        if is_reference(name):
            chosen = [load(name)]
        else:
            installed = discover() if installed is None else installed
            chosen = _installed(name, installed)
        for tool in chosen:
            known = users.get(tool.spec.name)
            same = known is not None and known.function is tool.function
            _add(specs, tool.spec, same=same)
            users.setdefault(tool.spec.name, tool)
    return Toolbox(specs, users, tuple(sources))


def _add(specs: dict[str, ToolSpec], spec: ToolSpec, *, same: bool) -> None:
    if spec.name in specs and not same:
        raise Conflict(
            f"Two tools of one agent are called {spec.name}: one of the group "
            f"{specs[spec.name].group}, one of the group {spec.group}.",
            "Leave one out of `tools`, or rename one with @tool(name=…).",
        )
    specs.setdefault(spec.name, spec)


def _installed(name: str, installed: dict[str, UserTool]) -> list[UserTool]:
    specs = {key: tool.spec for key, tool in installed.items()}
    members = groups(specs).get(name) or ((name,) if name in installed else ())
    if not members:
        all_groups = sorted({*groups(), *groups(specs)})
        all_tools = sorted({*BUILTIN, *specs})
        near = get_close_matches(name, [*all_groups, *all_tools], n=1)
        raise InvalidArgument(
            f"There is no tool or group {shown(name)}."
            + (f" Did you mean {near[0]!r}?" if near else ""),
            f"Groups are {', '.join(all_groups)}; tools are {', '.join(all_tools)}; "
            "a Python function is named module:function.",
        )
    return [installed[member] for member in members]
