"""The assembled context: nothing a provider would refuse, whatever lies in the transcript."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.context import assemble, message_tokens
from perdure.domain.messages import Message, Role, ToolCall

AT = datetime(2026, 1, 1, tzinfo=UTC)


def message(seq: int, role: Role, text: str, **fields: object) -> Message:
    return Message.model_validate(
        {
            "id": f"m{seq}",
            "seq": seq,
            "turn": 1,
            "role": role,
            "text": text,
            "tokens": message_tokens(text),
            "at": AT,
            **fields,
        }
    )


@st.composite
def transcripts(draw: st.DrawFn) -> list[Message]:
    """Turns with parallel calls, repeated ids, and missing, extra or early results."""
    found: list[Message] = []
    for turn in range(1, draw(st.integers(1, 5)) + 1):
        # Admission refuses blank messages.
        text = draw(st.text(min_size=1).filter(str.strip))
        found.append(message(len(found), Role.USER, text, turn=turn))
        for step in range(1, draw(st.integers(0, 4)) + 1):
            ids = draw(st.lists(st.sampled_from("abc"), max_size=3, unique=True))
            calls = tuple(ToolCall(id=i, name="read") for i in ids)
            batch = [
                message(
                    0,
                    Role.TOOL,
                    draw(st.text(max_size=9)),
                    turn=turn,
                    step=step,
                    tool_call_id=i,
                    tool_name="read",
                )
                for i in draw(st.lists(st.sampled_from("abcd"), max_size=4))
            ]
            answer = message(
                0,
                Role.ASSISTANT,
                draw(st.text(max_size=9)),
                turn=turn,
                step=step,
                tool_calls=calls,
            )
            batch.insert(draw(st.integers(0, len(batch))), answer)
            found += [
                m.model_copy(update={"seq": len(found) + n, "id": f"m{len(found) + n}"})
                for n, m in enumerate(batch)
            ]
    return found


@settings(deadline=None)
@given(transcripts(), st.integers(1, 400))
def test_nothing_a_provider_would_refuse_is_assembled(
    transcript: list[Message], budget: int
) -> None:
    messages = assemble(transcript, budget).messages
    assert messages[0].role is Role.USER
    position = 0
    while position < len(messages):
        current = messages[position]
        assert current.role is not Role.TOOL
        assert current.text.strip() or current.tool_calls
        results = messages[position + 1 : position + 1 + len(current.tool_calls)]
        assert [r.tool_call_id for r in results] == [c.id for c in current.tool_calls]
        position += 1 + len(results)


@settings(deadline=None)
@given(transcripts(), st.integers(1, 400))
def test_the_newest_user_message_and_the_newest_exchange_are_always_there(
    transcript: list[Message], budget: int
) -> None:
    messages = assemble(transcript, budget).messages
    users = [m for m in transcript if m.role is Role.USER]
    assert [m for m in messages if m.role is Role.USER][-1] == users[-1]
    said = [m for m in transcript if m.role is not Role.TOOL and (m.text.strip() or m.tool_calls)]
    assert said[-1] in messages


@settings(deadline=None)
@given(transcripts(), st.integers(1, 400))
def test_the_budget_bounds_all_but_the_message_of_the_turn_and_the_newest_exchange(
    transcript: list[Message], budget: int
) -> None:
    context = assemble(transcript, budget)
    groups: list[list[Message]] = []
    for m in context.messages:
        if m.role is Role.TOOL:
            groups[-1].append(m)
        else:
            groups.append([m])
    last_user = max(i for i, group in enumerate(groups) if group[0].role is Role.USER)
    free = {last_user, len(groups) - 1}
    spent = sum(m.tokens for i, group in enumerate(groups) if i not in free for m in group)
    assert spent <= budget


@settings(deadline=None)
@given(transcripts())
def test_a_wide_budget_leaves_nothing_out(transcript: list[Message]) -> None:
    context = assemble(transcript, 10**9)
    assert not context.cut
    kept = set(context.messages)
    for m in transcript:
        if m.role is not Role.TOOL and (m.text.strip() or m.tool_calls):
            assert m in kept
