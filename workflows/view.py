"""What a person sees in the Temporal UI: search attributes, summaries, current details.

Invariant: ids, states and counts only. No message text, no label, no secret.
"""

from __future__ import annotations

from temporalio import workflow
from temporalio.common import SearchAttributeKey

from perdure.domain import visibility
from perdure.domain.states import SessionState as State
from workflows.state import CurrentTurn, SessionState

STATE = SearchAttributeKey.for_keyword(visibility.STATE)


def step_summary(current: CurrentTurn, agent: str) -> str:
    """The line on a model step."""
    return f"turn {current.turn} · step {current.step} · {agent}"


def tool_summary(current: CurrentTurn, tool: str) -> str:
    """The line on a tool call."""
    return f"turn {current.turn} · step {current.step} · {tool}"


def show(state: SessionState, doing: str) -> None:
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
