"""What a person sees in the Temporal UI: search attributes, summaries, current details.

Invariant: ids, states and counts only. No message text, no label, no secret.
"""

from __future__ import annotations

from temporalio import workflow
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from perdure.domain import visibility
from perdure.domain.delegation import Supervision
from perdure.domain.keys import Kind
from perdure.domain.states import SessionState as State
from perdure.domain.steps import ChildStart
from workflows.state import CurrentTurn, SessionState

STATE = SearchAttributeKey.for_keyword(visibility.STATE)


def step_summary(current: CurrentTurn, agent: str) -> str:
    """The line on a model step."""
    return f"turn {current.turn} · step {current.step} · {agent}"


def tool_summary(current: CurrentTurn, tool: str) -> str:
    """The line on a tool call."""
    return f"turn {current.turn} · step {current.step} · {tool}"


def run_summary(child: ChildStart, parent_key: str) -> str:
    """The line on a child's workflow: what it is and whose."""
    return f"{child.agent} · {child.run_id} · for {parent_key}"


def run_attributes(child: ChildStart, parent_key: str) -> TypedSearchAttributes:
    """What a child's workflow is found by."""
    shown = {
        visibility.AGENT: child.agent,
        visibility.KIND: Kind.SUB_AGENT,
        visibility.STATE: State.IDLE,
        visibility.PARENT: parent_key,
    }
    return TypedSearchAttributes(
        [
            SearchAttributePair(SearchAttributeKey.for_keyword(name), str(value))
            for name, value in shown.items()
        ]
    )


def show(state: SessionState, doing: str, runs: Supervision) -> None:
    """Put what the session is doing on its page. Costs no history."""
    current = state.current
    lines = [
        f"**{state.agent}** · {doing}",
        "",
        "| | |",
        "|---|---|",
        f"| session | `{state.session_key}` |",
        f"| turn | {state.turn} |",
        f"| waiting | {len(state.inbox)} |",
    ]
    if current is not None:
        lines.insert(7, f"| step | {current.step} |")
        lines.insert(8, f"| message | `{current.envelope.message_id}` |")
    if state.run_id is not None:
        lines += [f"| run | `{state.run_id}` |", f"| for | `{state.parent_key}` |"]
    if runs.running or runs.queued:
        lines.append(f"| runs | {runs.running} under way, {runs.queued} wait for a place |")
    workflow.set_current_details("\n".join(lines))


class StateAttribute:
    """The `PerdureState` search attribute, upserted only when it says something new.

    Each upsert is a history event, so a turn of a single model call does not touch it: the
    attribute tells the sessions that work from those that rest, and the page tells the rest.
    """

    def __init__(self) -> None:
        self._shown = State.IDLE
        for pair in workflow.info().typed_search_attributes:
            if pair.key.name == STATE.name:
                self._shown = State(str(pair.value))

    def set(self, state: State) -> None:
        """Show `state` unless it is shown already."""
        if state != self._shown:
            self._shown = state
            workflow.upsert_search_attributes([STATE.value_set(str(state))])
