"""How information may flow, as code. No rule reaches in here.

Invariant: every refusal has a name that stays, and each function answers from its arguments
alone. A level that nobody gave is PUBLIC for a place, so that nothing flows there by omission.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from perdure.domain.labels import Label, can_flow, join
from perdure.policy.facts import Facts
from perdure.policy.hooks import Hook
from perdure.policy.secrets import find_in_arguments


class Invariant(StrEnum):
    """The names under which invariants stand in decisions and in the audit log."""

    #: Information would flow down.
    LABEL_FLOW = "label-flow"
    #: The session's label would rise above its clearance.
    CLEARANCE = "clearance"
    #: The model's provider may not see what the session knows.
    MODEL_CLEARANCE = "model-clearance"
    #: A credential stands in a tool's arguments.
    SECRET_IN_ARGUMENTS = "secret-in-arguments"
    #: A credential stands in what would leave: it leaves redacted.
    SECRET_IN_OUTPUT = "secret-in-output"
    #: The question could not be answered.
    EVALUATION = "evaluation"


class Violation(NamedTuple):
    """An invariant that stands against an act, and why, without the secret itself."""

    invariant: Invariant
    reason: str


#: Hooks whose text leaves the session. A secret in it is redacted, whatever the rules say.
EGRESS = frozenset({Hook.PRE_OUTPUT})

#: Hooks that only give back or begin anew: a session above its clearance may still do these.
_TAKES_NOTHING_IN = frozenset({Hook.PRE_OUTPUT, Hook.SESSION_RESET})


def violation(facts: Facts) -> Violation | None:
    """The first invariant that forbids what `facts` asks about, or None.

    An approval does not answer it: ask again after a person has approved.
    """
    return _flow(facts) or _clearance(facts) or _model(facts) or _secrets(facts)


def label_after(facts: Facts) -> Label:
    """The session's label once the act is done: it never falls, but by a reset."""
    if facts.hook is Hook.SESSION_RESET:
        return Label.PUBLIC
    return join(facts.label, facts.result_label or Label.PUBLIC)


def output_level(channel: Label, recipient: Label | None) -> Label:
    """The level of a recipient on a channel: the lower of the two; unknown is PUBLIC."""
    return min(channel, recipient or Label.PUBLIC, key=lambda label: label.rank)


def may_see(mine: Label, theirs: Label) -> bool:
    """Whether a session exists for me: see, read, query, steer. If not, answer as for none."""
    return can_flow(theirs, mine)


def may_send(mine: Label, theirs: Label, their_intake: Label | None = None) -> bool:
    """Whether my message may go to a session I can see; if not, it is a write-down.

    `their_intake` is the highest level it accepts without being there; None is its label. For a
    child's first message that is the child's clearance.
    """
    return may_see(mine, theirs) and can_flow(mine, join(theirs, their_intake or theirs))


def may_receive(label: Label, message: Label, clearance: Label) -> bool:
    """Whether a message may be taken in on arrival: it raises no label above its ceiling."""
    return can_flow(join(label, message), clearance)


def _flow(facts: Facts) -> Violation | None:
    destination = facts.destination
    if destination is None and facts.hook is Hook.PRE_OUTPUT:
        destination = Label.PUBLIC
    if destination is None or can_flow(facts.label, destination):
        return None
    return Violation(
        Invariant.LABEL_FLOW,
        f"The session is {facts.label}, and this goes to a place that is {destination}.",
    )


def _clearance(facts: Facts) -> Violation | None:
    after = label_after(facts)
    if facts.hook in _TAKES_NOTHING_IN or can_flow(after, facts.clearance):
        return None
    return Violation(
        Invariant.CLEARANCE,
        f"The session would be {after}; its agent's clearance is {facts.clearance}.",
    )


def _model(facts: Facts) -> Violation | None:
    if facts.model is None:
        return None
    clearance = facts.model_clearance or Label.PUBLIC
    after = label_after(facts)
    if can_flow(after, clearance):
        return None
    return Violation(
        Invariant.MODEL_CLEARANCE,
        f"The model would read what is {after}; its provider's clearance is {clearance}.",
    )


def _secrets(facts: Facts) -> Violation | None:
    # After the call its arguments are history; before it they are about to go somewhere.
    if facts.hook is Hook.POST_TOOL_RESPONSE or not facts.arguments:
        return None
    found = find_in_arguments(facts.arguments)
    if not found:
        return None
    where = "; ".join(f"{one.argument} holds a {one.kind}" for one in found[:4])
    return Violation(
        Invariant.SECRET_IN_ARGUMENTS,
        f"A credential stands in the arguments: {where}. Refer to it by its name instead.",
    )
