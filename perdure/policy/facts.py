"""What a hook is asked about, and so what a rule may name.

Invariant: a fact that a hook does not have cannot be given, and a rule cannot name it. What is
not known is None; a level that is not known is never taken for more than PUBLIC.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import JsonValue, model_validator

from perdure.domain.keys import Kind
from perdure.domain.labels import Label
from perdure.domain.messages import Frozen
from perdure.policy.hooks import Hook

#: The prefix of a rule field that reaches into a tool's arguments: `args.path`, `args.to.0.name`.
ARGS = "args."

_ALWAYS = ("session_key", "agent", "kind", "label", "clearance", "sender")
_CALL = ("tool", "arguments", "destination", "result_label")
_ALSO: dict[Hook, tuple[str, ...]] = {
    Hook.PRE_CONTEXT_INJECTION: ("text", "result_label", "model", "model_clearance"),
    Hook.PRE_TOOL_CALL: (*_CALL, "channel", "recipient"),
    Hook.POST_TOOL_RESPONSE: ("tool", "arguments", "text", "result_label"),
    Hook.PRE_OUTPUT: ("text", "channel", "recipient", "destination"),
    Hook.SECRET_ACCESS: ("secret", "tool", "arguments", "result_label"),
    Hook.SESSION_RESET: (),
    Hook.AGENT_INVOCATION: ("target", "text", "destination", "model", "model_clearance"),
    Hook.MCP_TOOL_CALL: (*_CALL, "server"),
}

#: What REDACT works on, by hook; it is no action of the other hooks.
REDACTABLE: dict[Hook, Literal["text", "arguments"]] = {
    Hook.PRE_CONTEXT_INJECTION: "text",
    Hook.PRE_TOOL_CALL: "arguments",
    Hook.POST_TOOL_RESPONSE: "text",
    Hook.PRE_OUTPUT: "text",
    Hook.AGENT_INVOCATION: "text",
    Hook.MCP_TOOL_CALL: "arguments",
}

#: Fields that hold a level, and so compare by rank.
LABEL_FIELDS = frozenset({"label", "clearance", "destination", "result_label", "model_clearance"})


class Facts(Frozen):
    """One question to the policy. Which fields a hook has, `fields_of` says."""

    hook: Hook
    #: The session that acts. These five come from its workflow, never from tool arguments.
    session_key: str
    agent: str
    kind: Kind = Kind.DM
    #: The session's live label, not one from a snapshot.
    label: Label
    #: The ceiling of `label`.
    clearance: Label
    #: Who asked for it.
    sender: str | None = None
    tool: str | None = None
    arguments: dict[str, JsonValue] | None = None
    #: What is taken in, or goes out.
    text: str | None = None
    channel: str | None = None
    recipient: str | None = None
    #: Level of the place it goes to. At PRE_OUTPUT, None is PUBLIC.
    destination: Label | None = None
    model: str | None = None
    #: What the model's provider may see; None is PUBLIC if there is a `model`.
    model_clearance: Label | None = None
    #: Level of what is taken in.
    result_label: Label | None = None
    #: Name of the credential, never its value.
    secret: str | None = None
    #: The agent or session that is given work.
    target: str | None = None
    #: The MCP server.
    server: str | None = None

    @model_validator(mode="after")
    def _only_what_the_hook_has(self) -> Self:
        allowed = {"hook", *_ALWAYS, *_ALSO[self.hook]}
        strange = [
            name
            for name in type(self).model_fields
            if name not in allowed and getattr(self, name) is not None
        ]
        if strange:
            raise ValueError(f"{self.hook} has no {', '.join(strange)}")
        return self


def fields_of(hook: Hook) -> tuple[str, ...]:
    """The fields a rule of `hook` may name; `args.` stands for any path into the arguments."""
    return tuple(ARGS if name == "arguments" else name for name in (*_ALWAYS, *_ALSO[hook]))


def read_field(facts: Facts, field: str) -> JsonValue:
    """The value of a rule field, None if it is missing.

    A path into arguments names keys of objects and, as numbers from 0, items of lists.
    """
    if not field.startswith(ARGS):
        value: JsonValue = getattr(facts, field)
        return value
    node: JsonValue = facts.arguments
    for part in field.removeprefix(ARGS).split("."):
        if isinstance(node, dict):
            node = node.get(part)
        elif isinstance(node, list) and part.isascii() and part.isdigit() and len(part) < 10:
            node = node[int(part)] if int(part) < len(node) else None
        else:
            return None
    return node
