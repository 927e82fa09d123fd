"""Judging the evidence: each promise, the figures it stands on, and whether it was held.

Invariant: pure functions of the evidence. A check that cannot be made, because the story never
came to the place, is not held.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import datetime
from itertools import pairwise

from gateway.demo.cast import ARCHIVE, LEAD
from gateway.demo.evidence import Evidence, Kill, times_of
from gateway.demo.lines import lines_of, stands_in
from gateway.demo.outflow_checks import approval, labels, trail
from gateway.demo.story_checks import exchange, recall, report, results
from gateway.demo.verdict import Check, Figures, verdict
from perdure.domain.messages import Role
from perdure.domain.runs import EndReason
from perdure.domain.states import EventKind, ToolStatus, TurnState

#: What a turn and a step may take of Temporal's history, on average, all that comes of kills, waits
#: and messages sent again included: 2.5 KB for a plain turn, and 500 bytes for its share of
#: summaries, which a window as small as the archive's makes every few turns; 4 MB for 400 turns
#: with tools, of two steps each.
PLAIN_TURN_BYTES = 3_000
TOOL_STEP_BYTES = 5_000


def examine(evidence: Evidence) -> tuple[Check, ...]:
    """Every check there is, made on `evidence`."""
    return (
        _messages(evidence),
        _order(evidence),
        _turns(evidence),
        _model_calls(evidence),
        _tool_effects(evidence),
        *(_recovery(evidence, kill) for kill in evidence.kills),
        _agreement(evidence),
        _history(evidence),
        _no_text(evidence),
        results(evidence),
        *((report(evidence), exchange(evidence)) if evidence.rehearsed else ()),
        recall(evidence),
        labels(evidence),
        *(approval(evidence, each) for each in evidence.outflow.approvals),
        trail(evidence),
    )


def _messages(evidence: Evidence) -> Check:
    asked = Counter((each.session_key, each.text) for each in evidence.sent)
    sent = {(each.session_key, each.message_id) for each in evidence.sent}
    asked_of = {each.session_key for each in evidence.sent}
    answers = {(said.session_key, said.id) for said in evidence.said if said.role is Role.ASSISTANT}
    taken = Counter((turn.session_key, turn.message_id) for turn in evidence.turns)
    answered = {
        (turn.session_key, turn.message_id)
        for turn in evidence.turns
        if (turn.session_key, turn.answer_id) in answers
    }
    last_words = Counter(
        (said.session_key, said.turn)
        for said in evidence.said
        if said.role is Role.ASSISTANT and not said.tool_calls
    )
    heard = Counter(
        (said.session_key, said.text)
        for said in evidence.said
        if said.role is Role.USER and said.from_session is None and said.session_key in asked_of
    )
    doubled = (
        sum(count - 1 for count in taken.values())
        + sum(count - 1 for count in last_words.values())
        # The same words under another id, which nobody sent.
        + sum((heard - asked).values())
    )
    figures: Figures = {
        "sent": len(sent),
        "sent_again": sum(each.times - 1 for each in evidence.sent),
        "answered": len(answered & sent),
        "lost": len(sent - answered),
        "doubled": doubled,
    }
    return verdict(
        "messages",
        "Every message is answered, and answered once",
        bool(sent) and sent <= answered and not doubled and not evidence.waiting,
        figures,
    )


def _order(evidence: Evidence) -> Check:
    turn_of = {(turn.session_key, turn.message_id): turn.turn for turn in evidence.turns}
    by_session: dict[str, list[int]] = defaultdict(list)
    for each in evidence.sent:
        if (each.session_key, each.message_id) in turn_of:
            by_session[each.session_key].append(turn_of[each.session_key, each.message_id])
    late = sum(
        after <= before for numbers in by_session.values() for before, after in pairwise(numbers)
    )
    return verdict(
        "order",
        "A sender's messages are answered in its order",
        not late,
        {"sessions": len(by_session), "out_of_order": late},
    )


def _turns(evidence: Evidence) -> Check:
    killed = {
        run.session_key for run in evidence.delegation.runs if run.end_reason is EndReason.KILLED
    }
    completed = sum(turn.state is TurnState.COMPLETED for turn in evidence.turns)
    stopped = sum(
        turn.state is TurnState.INTERRUPTED and turn.session_key in killed
        for turn in evidence.turns
    )
    others = len(evidence.turns) - completed - stopped
    return verdict(
        "turns",
        "Every turn comes to its answer, unless somebody stopped it",
        bool(completed) and not others,
        {"completed": completed, "stopped": stopped, "failed_or_unfinished": others},
    )


def _model_calls(evidence: Evidence) -> Check:
    committed = sum(step.committed for step in evidence.steps)
    begun = sum(step.attempts for step in evidence.steps)
    answers = Counter(
        (said.session_key, said.turn, said.step)
        for said in evidence.said
        if said.role is Role.ASSISTANT and said.step
    )
    again, without_cause = _begun_again(evidence)
    figures: Figures = {
        "answers": committed,
        "calls_begun": begun,
        "cut_by_a_kill": begun - committed,
        "reused": sum(step.reused for step in evidence.steps),
        "begun_again_without_cause": without_cause,
        "paid_twice": again + sum(count - 1 for count in answers.values()),
        "tokens_miscounted": _miscounted(evidence),
    }
    return verdict(
        "model_calls",
        "No model answer is paid for twice",
        committed == len(evidence.steps) > 0
        and not any((figures["paid_twice"], without_cause, figures["tokens_miscounted"])),
        figures,
    )


def _miscounted(evidence: Evidence) -> int:
    """By how much sessions have counted other tokens than their steps; summaries are paid beside
    the steps."""
    taken: Counter[str] = Counter()
    for step in evidence.steps:
        taken[step.session_key] += step.tokens
    return sum(
        abs(counted - taken[key])
        for key, counted in evidence.tokens.items()
        if key not in evidence.summarised
    )


def _begun_again(evidence: Evidence) -> tuple[int, int]:
    """Model calls that were begun after their answer was committed; and those begun again though
    nobody was killed and no provider failed since the call before."""
    committed_at = {
        (event.session_key, event.turn, event.step): event.id
        for event in times_of(evidence, EventKind.STEP_COMPLETED)
    }
    starts = defaultdict(list)
    for event in times_of(evidence, EventKind.STEP_STARTED):
        starts[event.session_key, event.turn, event.step].append(event)
    causes = [at for kill in evidence.kills for at in (kill.began, kill.ended)]
    causes += [event.at for event in times_of(evidence, EventKind.STEP_RETRYING)]
    paid_again = without_cause = 0
    for place, begun in starts.items():
        paid_again += sum(event.id > committed_at.get(place, event.id) for event in begun)
        without_cause += sum(
            not any(before.at <= cause <= after.at for cause in causes)
            for before, after in pairwise(begun)
        )
    return paid_again, without_cause


def _tool_effects(evidence: Evidence) -> Check:
    states = Counter(call.status for call in evidence.calls)
    notices = Counter(evidence.notices)
    silent = 0
    for call in evidence.calls:
        if call.tool in evidence.once and call.status is ToolStatus.OK:
            # Reported as done: by the first attempt, and on the board if it is a notice.
            silent += call.claims > 1
            silent += call.tool == "post_notice" and notices[call.key] != 1
    claimed = {call.key for call in evidence.calls}
    doubled = sum(count - 1 for count in notices.values()) + len(set(notices) - claimed)
    figures: Figures = {
        "calls": len(evidence.calls),
        "done": states[ToolStatus.OK],
        "refused": states[ToolStatus.ERROR],
        "unknown_outcome": states[ToolStatus.UNKNOWN],
        "safely_run_again": sum(
            call.claims > 1 and call.tool not in evidence.once for call in evidence.calls
        ),
        "without_report": states[None],
        "effects_doubled": doubled,
        "repeated_silently": silent,
    }
    return verdict(
        "tool_effects",
        "A tool's effect happens once, or its outcome is told as unknown",
        bool(evidence.calls) and not (states[None] or doubled or silent),
        figures,
    )


def _recovery(evidence: Evidence, kill: Kill) -> Check:
    calls = _in_flight(evidence, kill, EventKind.STEP_STARTED, EventKind.STEP_COMPLETED)
    tools = _in_flight(evidence, kill, EventKind.TOOL_STARTED, EventKind.TOOL_COMPLETED)
    asked = _in_flight(evidence, kill, EventKind.APPROVAL_REQUESTED, EventKind.APPROVAL_DECIDED)
    served = _seconds_until(evidence, kill.ended, lambda key: True)
    cut = {*calls, *tools, *asked}
    each = [_seconds_until(evidence, kill.ended, key.__eq__) for key in cut]
    went_on = [seconds for seconds in each if seconds is not None]
    return verdict(
        "recovery",
        f"Killed: {kill.what}",
        bool(cut) and served is not None and len(went_on) == len(cut),
        {
            "sessions_cut": len(cut),
            "model_calls_in_flight": len(calls),
            "tool_calls_in_flight": len(tools),
            "waiting_for_a_person": len(asked),
            "seconds_until_anyone_was_served": served,
            "until_all_of_them_went_on": max(went_on, default=None),
        },
    )


def _in_flight(
    evidence: Evidence, kill: Kill, started: EventKind, completed: EventKind
) -> list[str]:
    """For each call that had begun at a kill and was not over, its session, of those at work."""

    def places(kind: EventKind) -> set[tuple[str, object, object, object]]:
        return {
            (event.session_key, event.turn, event.step, event.payload.get("call"))
            for event in times_of(evidence, kind)
            if event.session_key in kill.session_keys and event.at <= kill.began
        }

    return [place[0] for place in places(started) - places(completed)]


def _seconds_until(
    evidence: Evidence, moment: datetime, whose: Callable[[str], bool]
) -> float | None:
    # A person's decision is written by the person's own process, whatever else is down.
    later = (
        event.at
        for event in evidence.events
        if event.at > moment
        and whose(event.session_key)
        and event.kind is not EventKind.APPROVAL_DECIDED
    )
    first = min(later, default=None)
    return None if first is None else round((first - moment).total_seconds(), 3)


def _agreement(evidence: Evidence) -> Check:
    scheduled = sum(history.model_steps for history in evidence.histories)
    return verdict(
        "agreement",
        "Temporal's history and the store tell the same steps",
        scheduled == len(evidence.steps) > 0,
        {"in_the_history": scheduled, "in_the_store": len(evidence.steps)},
    )


def _history(evidence: Evidence) -> Check:
    turns = sum(turn.session_key == ARCHIVE for turn in evidence.turns)
    steps = sum(step.session_key == LEAD for step in evidence.steps)
    plain_events, plain_bytes = _size(evidence, ARCHIVE)
    tool_events, tool_bytes = _size(evidence, LEAD)
    return verdict(
        "history",
        "Temporal's history stays small, whatever was killed",
        0 < plain_bytes <= PLAIN_TURN_BYTES * turns and 0 < tool_bytes <= TOOL_STEP_BYTES * steps,
        {
            "events_of_a_plain_turn": _ratio(plain_events, turns),
            "bytes_of_it": _ratio(plain_bytes, turns),
            "events_of_a_step_with_tools": _ratio(tool_events, steps),
            "bytes_of_that": _ratio(tool_bytes, steps),
            "bytes_of_text_in_the_store": sum(len(said.text.encode()) for said in evidence.said),
        },
    )


def _size(evidence: Evidence, session_key: str) -> tuple[int, int]:
    """Events and bytes of a session's history."""
    found = [each for each in evidence.histories if each.session_key == session_key]
    return sum(each.events for each in found), sum(each.size for each in found)


def _ratio(total: int, count: int) -> float | None:
    return round(total / count, 1) if count else None


def _no_text(evidence: Evidence) -> Check:
    history = b"\n".join(each.raw for each in evidence.histories)
    pieces = {piece for said in evidence.said for piece in lines_of(said.text)}
    for said in evidence.said:
        for call in said.tool_calls:
            pieces.update(lines_of(call.arguments))
    found = sum(stands_in(piece, history) for piece in pieces)
    # The same search must find what is there.
    ids = [each.message_id for each in evidence.sent]
    ids_found = sum(message_id.encode() in history for message_id in ids)
    return verdict(
        "no_text",
        "No text of the conversation stands in Temporal's history",
        bool(pieces) and not found and ids_found == len(ids) > 0,
        {
            "lines_of_text_looked_for": len(pieces),
            "found": found,
            "message_ids_looked_for": len(ids),
            "ids_found": ids_found,
        },
    )
