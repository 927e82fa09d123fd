"""Judging what the agents did among themselves: results, the report, the exchange, the recall.

Invariant: as in `gateway.demo.checks`: pure functions of the evidence, and what never happened is
not held.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from gateway.demo.cast import ARCHIVE, EDITOR, LEAD, PRINTER
from gateway.demo.dictating import DEPTHS
from gateway.demo.verdict import Check, verdict
from perdure.domain.errors import Code
from perdure.domain.messages import Role
from perdure.domain.runs import EndReason, RunState

if TYPE_CHECKING:
    from gateway.demo.delegated import Delegated
    from gateway.demo.evidence import Evidence, Said


def results(evidence: Evidence) -> Check:
    """Every run has ended, and its result came to its parent once."""
    runs = evidence.delegation.runs
    steered = {run.follows for run in runs if run.follows is not None}
    owed = {run.session_key for run in runs if run.run_id not in steered}
    children = {run.session_key for run in runs}
    came = Counter(
        said.from_session
        for said in evidence.said
        if said.role is Role.USER and said.from_session in children
    )
    answers = _answers(evidence)
    completed = [run for run in runs if run.end_reason is EndReason.COMPLETED]
    kept = sum(
        run.kept is not None and run.kept == answers.get(run.session_key) for run in completed
    )
    figures = {
        "runs": len(runs),
        "completed": len(completed),
        "steered": len(steered),
        "killed": sum(run.end_reason is EndReason.KILLED for run in runs) - len(steered),
        "results_owed": len(owed),
        "came": sum(came.values()),
        "lost": len(owed - came.keys()),
        "doubled": sum(came.values()) - len(came),
        "kept_word_for_word": kept,
    }
    over = all(run.state is RunState.ENDED and run.handed for run in runs)
    held = over and set(came) == owed and not figures["doubled"] and kept == len(completed) > 0
    return verdict("results", "Each result comes back once, whatever died meanwhile", held, figures)


def _answers(evidence: Evidence) -> dict[str, str]:
    """What each session answered last."""
    texts = {(said.session_key, said.id): said.text for said in evidence.said}
    return {
        turn.session_key: texts[turn.session_key, turn.answer_id]
        for turn in evidence.turns
        if turn.answer_id is not None
    }


def report(evidence: Evidence) -> Check:
    """The lead's report is made of what the runs answered."""
    runs: list[Delegated] = [
        run for run in evidence.delegation.runs if run.end_reason is EndReason.COMPLETED
    ]
    found = [evidence.delegation.report.count(run.response) for run in runs]
    return verdict(
        "report",
        "The report holds what every researcher found, word for word",
        bool(runs) and found == [1] * len(runs),
        {
            "answers": len(runs),
            "found_once": found.count(1),
            "bytes_of_the_report": len(evidence.delegation.report.encode()),
        },
    )


def exchange(evidence: Evidence) -> Check:
    """The exchange came to its end, and the wait that closed the ring was refused at once."""
    settled = [one for one in _called(evidence, LEAD, "sessions_send") if "transcript" in one]
    refused = [
        one["error"]["code"]
        for one in _called(evidence, PRINTER, "sessions_send")
        if "error" in one
    ]
    reached = sum(said.from_session == PRINTER for said in _of(evidence, LEAD))
    figures: dict[str, int | float | None] = {
        "messages_of_the_exchange": sum(len(one["transcript"]) for one in settled),
        "turns_completed": sum(one["turns_completed"] for one in settled),
        "waits_that_closed_a_ring": refused.count(Code.DEADLOCK),
        "of_these_delivered": reached,
        "answers_that_came_all_the_same": sum(
            one.get("status") == "replied" for one in _called(evidence, EDITOR, "sessions_send")
        ),
    }
    held = list(figures.values()) == [4, 2, 1, 0, 1]
    return verdict(
        "exchange",
        "Agents settle things by themselves, and a ring of waits is found",
        held,
        figures,
    )


def recall(evidence: Evidence) -> Check:
    """The first message of the long conversation was handed back as it was said."""
    said = [one for one in _of(evidence, ARCHIVE) if one.role is Role.USER]
    first = said[0].text if said else ""
    answer = _answers(evidence).get(ARCHIVE, "")
    expanded = [one.text for one in _of(evidence, ARCHIVE) if one.tool_name == "ctx_expand"]
    facts = evidence.recollection
    figures: dict[str, int | float | None] = {
        "messages": facts.messages,
        "summaries": facts.summaries,
        "read_by_the_model": facts.in_context + facts.raw,
        "depths_above_the_first_message": facts.depths_above_the_first,
        "bytes_of_it": len(first.encode()),
        "handed_back_exactly": sum(first in _body(text) for text in expanded),
        "in_the_answer": int(first != "" and first in answer),
        "faults_of_the_summaries": facts.faults,
    }
    held = bool(figures["handed_back_exactly"]) and not facts.faults
    if evidence.rehearsed:
        # What another model makes of it is its own affair.
        held = held and bool(figures["in_the_answer"])
    return verdict(
        "recall",
        "What was said first comes back byte for byte from under its summaries",
        bool(first) and held and facts.depths_above_the_first >= DEPTHS,
        figures,
    )


def _body(result: str) -> str:
    try:
        return str(json.loads(result).get("body"))
    except ValueError:
        return ""


def _of(evidence: Evidence, session_key: str) -> list[Said]:
    return [said for said in evidence.said if said.session_key == session_key]


def _called(evidence: Evidence, session_key: str, tool: str) -> list[dict[str, Any]]:
    """What the calls of a tool came to in a session."""
    results = (said.text for said in _of(evidence, session_key) if said.tool_name == tool)
    return [json.loads(text) for text in results]
