"""Judging what left: labels, approvals, and the audit trail.

Invariant: as in `gateway.demo.checks`: pure functions of the evidence, and a search that finds
nothing counts only if it finds what is there.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from gateway.demo.lines import lines_of, stands_in
from gateway.demo.outflow import Delivery, Place
from gateway.demo.verdict import Check, Figures, verdict
from perdure.domain.approvals import Approval, ApprovalState, digest_of
from perdure.domain.labels import Label, can_flow
from perdure.domain.states import DeliveryState, ToolStatus, TurnState
from perdure.policy.hooks import Action, Hook
from perdure.policy.invariants import Invariant

if TYPE_CHECKING:
    from gateway.demo.evidence import Evidence

#: A hook in a step of a session.
_At = tuple[str, str, int | None, int | None]

#: Deliveries that left, or may have.
_LEFT = frozenset(
    {
        DeliveryState.BEGUN,
        DeliveryState.SENT,
        DeliveryState.CONFIRMED,
        DeliveryState.UNKNOWN,
    }
)


def labels(evidence: Evidence) -> Check:
    """Nothing stands where its label may not flow."""
    outflow = evidence.outflow
    history = Place(
        name="history",
        level=Label.PUBLIC,
        content=b"\n".join(run.raw for run in evidence.histories),
    )
    lines = set(lines_of(outflow.secret))
    above = below = 0
    for place in (*outflow.places, *outflow.channels.values(), history):
        found = sum(stands_in(line, place.content) for line in lines)
        if can_flow(outflow.level, place.level):
            above += found
        else:
            below += found
    public = [place for place in outflow.channels.values() if place.level is Label.PUBLIC]
    figures: Figures = {
        "secret_lines_looked_for": len(lines),
        "found_where_they_may_be": above,
        "found_below_their_label": below,
        "messages_in_public_channels": sum(place.content.count(b"\n") for place in public),
        "deliveries_and_answers_below_their_label": _sent_down(evidence),
        "refusals_in_the_trail": sum(
            one.decision == Action.BLOCK and one.decided_by == f"invariant:{Invariant.LABEL_FLOW}"
            for one in outflow.decisions
        ),
    }
    return verdict(
        "labels",
        "Nothing comes to a place below its label",
        above > 0 and not (below or figures["deliveries_and_answers_below_their_label"]),
        figures,
    )


def _sent_down(evidence: Evidence) -> int:
    outflow = evidence.outflow
    deliveries = sum(
        each.state in _LEFT and not can_flow(each.label, each.level) for each in outflow.deliveries
    )
    answered = {
        (turn.session_key, turn.answer_id)
        for turn in evidence.turns
        if turn.state is TurnState.COMPLETED
    }
    answers = sum(
        (said.session_key, said.id) in answered and not can_flow(said.label, outflow.answers)
        for said in evidence.said
    )
    return deliveries + answers


def approval(evidence: Evidence, asked: Approval) -> Check:
    """One approval: of that very call, decided once, and what it let through came once."""
    place = (asked.session_key, asked.turn, asked.step)
    outflow = evidence.outflow
    said = [
        each
        for each in evidence.said
        if (each.session_key, each.turn, each.step) == place and each.tool_calls
    ]
    bound = [
        digest_of(call) == asked.digest
        for each in said
        for number, call in enumerate(each.tool_calls)
        if number == asked.call
    ]
    claims = [
        call.claims
        for call in evidence.calls
        if (call.session_key, call.turn, call.step) == place and call.call == asked.call
    ]
    decided = [
        one.decision
        for one in outflow.decisions
        if one.hook == "APPROVAL" and (one.session_key, one.turn, one.step) == place
    ]
    sent = [
        each for each in outflow.deliveries if (each.session_key, each.turn, each.step) == place
    ]
    figures: Figures = {
        "calls_it_is_bound_to": sum(bound),
        "decisions_in_the_trail": len(decided),
        "runs_of_the_call": sum(claims),
        "deliveries": len(sent),
        "times_in_the_channel": sum(_times(outflow.channels, each) for each in sent),
    }
    held = list(figures.values()) == [1, 1, 1, 1, 1] and decided == [ApprovalState.APPROVED]
    return verdict(
        "approval",
        "A person's approval is bound to one call and decided once; the message arrives once",
        held and asked.state is ApprovalState.APPROVED,
        figures,
    )


def _times(channels: dict[str, Place], sent: Delivery) -> int:
    place = channels.get(sent.channel)
    return 0 if place is None else place.content.count(sent.delivery_id.encode())


def trail(evidence: Evidence) -> Check:
    """Every decision stands in a chain that nobody has touched."""
    outflow = evidence.outflow
    recorded: Counter[_At] = Counter(
        (one.hook, one.session_key, one.turn, one.step) for one in outflow.decisions
    )
    needed: Counter[_At] = Counter(
        (Hook.PRE_TOOL_CALL, call.session_key, call.turn, call.step)
        for call in evidence.calls
        if call.status in (ToolStatus.OK, ToolStatus.UNKNOWN)
    )
    last_steps = {
        (said.session_key, said.id): (Hook.PRE_OUTPUT, said.session_key, said.turn, said.step)
        for said in evidence.said
    }
    needed.update(
        last_steps[turn.session_key, turn.answer_id]
        for turn in evidence.turns
        if turn.state is TurnState.COMPLETED and turn.answer_id
    )
    needed.update(
        (Hook.PRE_OUTPUT, each.session_key, each.turn, each.step)
        for each in outflow.deliveries
        if each.state in _LEFT
    )
    missing = sum((needed - recorded).values())
    report = outflow.trail
    return verdict(
        "audit",
        "Every decision stands in an audit chain that verifies",
        report.valid and report.entries > 0 and not missing,
        {
            "entries": report.entries,
            "faults": sum(fault.count for fault in report.faults),
            "decisions_looked_for": sum(needed.values()),
            "missing": missing,
        },
    )
