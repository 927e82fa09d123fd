"""What leaves a session, and what does not: answers, streamed pieces, messages to channels.

Each test goes through `SessionClient`, a real Temporal server and a real worker.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure.domain.labels import Label
from perdure.domain.states import DeliveryState, EventKind, TurnState
from perdure.guard import WITHHELD
from perdure.store.tables import deliveries
from perdure.store.transcript import TurnResult
from tests.support.openai_server import OpenAIServer, Reply, calls, fails, says
from tests.support.outside import HOST, http_receiver
from tests.support.policed import (
    ALL_TOOLS,
    CONFIG,
    TIMEOUT,
    ask,
    audit,
    call,
    delivered,
    events,
    listening,
    refusal,
    results,
    rule,
    stored,
)
from tests.support.stack import Stack, fresh_key, running_stack

KEY = "sk-ant-api03-Zk3Vq8LmP0xTn7RcW2yB"
AGENTS = f"""
[agents.talker]
model = "openai-chat:fake"
tools = {ALL_TOOLS}
max_steps = 3

[agents.coder]
model = "openai-chat:fake"
tools = []

[agents.open]
model = "openai-chat:fake"
tools = []

[limits]
step_attempts = 1
"""
RULES = rule(
    "no-codename",
    "PRE_OUTPUT",
    "REDACT",
    ("agent", "equals", "coder"),
    ("text", "matches", "red +falcon"),
    pattern="red +falcon",
)


@pytest.fixture(scope="module")
async def provider() -> AsyncIterator[OpenAIServer]:
    async with OpenAIServer() as server:
        yield server


@pytest.fixture(scope="module")
async def stack(
    temporal_address: str, provider: OpenAIServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stack]:
    home = tmp_path_factory.mktemp("egress")
    environ = {"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "test-key"}
    async with running_stack(
        home, temporal_address, config=CONFIG + AGENTS + RULES, environ=environ
    ) as running:
        yield running


def to(channel: str, name: str, peer: str = "chair") -> str:
    """A new session whose answers go to a recipient of a channel."""
    return f"{fresh_key(name)}~peer~{peer}~channel~{channel}"


# Answers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("channel", "peer", "label", "leaves"),
    [
        ("public", "anyone", Label.PUBLIC, True),
        ("public", "anyone", Label.INTERNAL, False),
        ("public", "anyone", Label.CONFIDENTIAL, False),
        ("staff", "team", Label.PUBLIC, True),
        ("staff", "team", Label.INTERNAL, True),
        ("staff", "team", Label.CONFIDENTIAL, False),
        ("staff", "stranger", Label.INTERNAL, False),
        ("board", "chair", Label.CONFIDENTIAL, True),
        ("board", "stranger", Label.PUBLIC, True),
        ("board", "stranger", Label.INTERNAL, False),
        ("no-such-channel", "chair", Label.PUBLIC, True),
        ("no-such-channel", "chair", Label.INTERNAL, False),
    ],
)
async def test_an_answer_flows_to_its_channel_or_is_withheld(
    stack: Stack, channel: str, peer: str, label: Label, leaves: bool
) -> None:
    """Handed case, twice the same: min(channel, recipient), unknown is PUBLIC."""
    key = to(channel, "answer", peer)
    for _ in range(2):
        result = await ask(stack, key, "/say the-answer", label=label)
        assert result.text == ("the-answer" if leaves else WITHHELD)
        assert result.state is (TurnState.COMPLETED if leaves else TurnState.FAILED)
    decided = {(one.decision, one.decided_by) for one in await audit(stack, key, "PRE_OUTPUT")}
    assert decided == {("ALLOW", "default") if leaves else ("BLOCK", "invariant:label-flow")}


async def withheld(
    stack: Stack, provider: OpenAIServer, *replies: Reply, needle: str = "needle"
) -> TurnResult:
    """What a CONFIDENTIAL session of a PUBLIC channel answers, while someone listens; none of
    what the provider says is anywhere then."""
    key = to("public", "withheld", "anyone")
    provider.script(*replies)
    async with listening(stack, key) as heard:
        result = await ask(stack, key, "go", label=Label.CONFIDENTIAL, agent="talker")
    assert needle not in "".join(heard)
    assert needle not in json.dumps(result.model_dump(mode="json"))
    assert await stored(stack, needle) == []
    return result


async def test_a_withheld_answer_is_nowhere(stack: Stack, provider: OpenAIServer) -> None:
    words = [f"word-needle-{number} " for number in range(20)]
    result = await withheld(stack, provider, says(*words, pause=0.05), needle="word-needle")
    assert (result.text, result.state) == (WITHHELD, TurnState.FAILED)
    assert result.error is not None
    assert result.error["code"] == "denied"


async def test_what_a_provider_says_of_its_failure_is_an_output_too(
    stack: Stack, provider: OpenAIServer
) -> None:
    """It may quote what it was sent."""
    reply = fails(400, "cannot process: quoted-needle")
    result = await withheld(stack, provider, reply, needle="quoted-needle")
    assert result.state is TurnState.FAILED
    assert result.error is not None
    assert "bad_request" in result.error["message"]


async def test_a_step_limit_is_an_output_too(stack: Stack, provider: OpenAIServer) -> None:
    reply = calls(("1", "ls", "{}"))
    result = await withheld(stack, provider, reply, reply, reply, needle="no-needle")
    assert (result.text, result.state) == (WITHHELD, TurnState.FAILED)


async def test_the_name_of_a_tool_is_no_way_out(stack: Stack, provider: OpenAIServer) -> None:
    """A model may call anything a tool."""
    key = to("public", "named", "anyone")
    provider.script(calls(("1", "named needle of 42 millions", "{}")), says("done"))
    await ask(stack, key, "go", label=Label.CONFIDENTIAL, agent="talker")
    assert await stored(stack, "named needle") == ["messages"]


async def test_an_interrupted_answer_is_an_output_too(stack: Stack, provider: OpenAIServer) -> None:
    key = to("public", "stopped", "anyone")
    provider.script(says("half-needle ", "half-needle ", ending="hang"))
    count = len(provider.requests)
    ticket = await stack.client.send(key, "go", label=Label.CONFIDENTIAL, agent="talker")
    await provider.arrived(count + 1)
    await asyncio.sleep(0.5)
    await stack.client.interrupt(key)
    result = await stack.client.wait(key, ticket.message_id, timeout=TIMEOUT)
    assert result.state is not TurnState.COMPLETED
    assert "half-needle" not in result.text
    assert await stored(stack, "half-needle") == []


async def test_the_gateway_has_a_level(temporal_address: str, tmp_path: Path) -> None:
    """Sessions that no channel brought are answered to whoever asks at this machine."""
    config = f'{CONFIG}\n[gateway]\nlevel = "INTERNAL"\n'
    async with running_stack(tmp_path, temporal_address, config=config) as stack:
        key = fresh_key("gateway")
        assert (await ask(stack, key, "/say yes", label=Label.INTERNAL)).text == "yes"
        assert (await ask(stack, key, "/say no", label=Label.CONFIDENTIAL)).text == WITHHELD
        assert (await ask(stack, fresh_key("other"), "/say yes")).text == "yes"


# Secrets and redaction ---------------------------------------------------------------------------


async def test_a_secret_in_an_answer_is_redacted_and_never_streamed(
    stack: Stack, provider: OpenAIServer
) -> None:
    key = fresh_key("secret")
    pieces = ["The ", "key ", "is ", *KEY, " ", *("and " * 10).split(" "), "done"]
    provider.script(says(*pieces, pause=0.05))
    async with listening(stack, key) as heard:
        result = await ask(stack, key, "go", agent="open")
    assert result.text.startswith("The key is [REDACTED:")
    assert result.text.endswith("done")
    assert "sk-ant" not in "".join(heard)
    assert await stored(stack, KEY) == []
    (entry,) = await audit(stack, key, "PRE_OUTPUT")
    assert (entry.decision, entry.decided_by) == ("REDACT", "invariant:secret-in-output")


async def test_what_a_rule_redacts_is_never_streamed(stack: Stack, provider: OpenAIServer) -> None:
    """Not even the beginning of it, before the pattern has come to its end."""
    key = fresh_key("codename")
    provider.script(says("It ", "is ", "red ", "  ", "  ", "falcon ", "now ", pause=0.3))
    async with listening(stack, key) as heard:
        result = await ask(stack, key, "go", agent="coder")
    assert "falcon" not in result.text
    assert result.text.startswith("It is [REDACTED")
    assert "red" not in "".join(heard)
    assert await stored(stack, "falcon") == []


async def test_what_may_flow_is_streamed(stack: Stack, provider: OpenAIServer) -> None:
    """The counterpart: it is not silence that keeps the other tests green."""
    key = to("board", "stream")
    provider.script(says(*["word "] * 30, pause=0.05))
    async with listening(stack, key) as heard:
        result = await ask(stack, key, "go", label=Label.CONFIDENTIAL, agent="open")
    assert result.text == "word " * 30
    assert "word word " in "".join(heard)


# Messages ----------------------------------------------------------------------------------------


async def ledger(stack: Stack, key: str) -> list[tuple[str, str, str]]:
    """A session's deliveries: state, label, level."""
    rows = await stack.client.store.database.read(
        lambda connection: connection.execute(
            deliveries.select().where(deliveries.c.session_key == key)
        ).all()
    )
    return [(row.state, row.label, row.level) for row in rows]


async def test_a_message_reaches_its_channel_once(stack: Stack) -> None:
    key = fresh_key("send")
    script = call("message", channel="board", recipient="chair", text="once-needle")
    told = json.loads((await ask(stack, key, script, "/say {{1}}")).text)
    assert (told["status"], told["channel"], told["recipient"]) == ("sent", "board", "chair")
    assert told["label"] == "PUBLIC"
    assert told["delivery_id"]
    assert delivered(stack, "board").count("once-needle") == 1
    assert await ledger(stack, key) == [("confirmed", "PUBLIC", "CONFIDENTIAL")]
    kinds = [one.kind for one in await events(stack, key)]
    assert kinds.index(EventKind.DELIVERY_BEGUN) < kinds.index(EventKind.DELIVERY_SENT)
    hooks = [one.hook for one in await audit(stack, key) if one.step == 1]
    assert hooks[-4:] == ["PRE_TOOL_CALL", "SECRET_ACCESS", "PRE_OUTPUT", "POST_TOOL_RESPONSE"]


@pytest.mark.parametrize(
    ("channel", "recipient", "leaves"),
    [
        ("board", "chair", True),
        ("board", "stranger", False),
        ("board", "CHAIR", False),
        ("staff", "team", False),
        ("public", "anyone", False),
    ],
)
async def test_a_message_of_a_confidential_session_flows_or_is_refused(
    stack: Stack, channel: str, recipient: str, leaves: bool
) -> None:
    key = fresh_key("flow")
    text = f"flow-{channel}-{recipient}"
    script = call("message", channel=channel, recipient=recipient, text=text)
    result = await ask(stack, key, call("ledger"), "---", script, script, "/say {{2}}")
    assert (text in delivered(stack, channel)) is leaves
    if not leaves:
        assert refusal(result.text)["code"] == "denied"
        assert "CONFIDENTIAL" in refusal(result.text)["message"]
        first, second = (await results(stack, key))[1:]
        assert first == second
        assert await ledger(stack, key) == []


@pytest.mark.parametrize(
    "argument", ["caller_session_key", "session_key", "label", "level", "approved", "cause"]
)
async def test_nobody_says_who_calls_or_at_which_level(stack: Stack, argument: str) -> None:
    """Handed case: `caller_session_key` is refused as unknown."""
    key = fresh_key("caller")
    arguments = {"channel": "public", "recipient": "anyone", "text": "caller-needle"}
    result = await ask(
        stack, key, call("ledger"), "---", call("message", **arguments, **{argument: "PUBLIC"})
    )
    told = refusal((await results(stack, key))[-1])
    assert told["code"] in ("invalid_argument", "denied")
    assert "caller-needle" not in delivered(stack, "public")
    assert result.label is Label.CONFIDENTIAL
    key = fresh_key("caller-public")
    await ask(stack, key, call("message", **arguments, **{argument: "PUBLIC"}))
    (told,) = map(refusal, await results(stack, key))
    assert told["code"] == "invalid_argument"
    assert argument in told["message"]
    assert "caller-needle" not in delivered(stack, "public")


async def test_a_secret_in_a_message_is_refused(stack: Stack) -> None:
    key = fresh_key("leak")
    script = call("message", channel="board", recipient="chair", text=f"take {KEY}")
    await ask(stack, key, script)
    assert "anthropic-key" in (await results(stack, key))[0]
    assert not any(KEY in text for text in delivered(stack, "board"))
    assert "audit" not in await stored(stack, KEY)


async def test_killed_while_a_message_leaves_it_is_unknown_and_not_sent_again(
    temporal_address: str, tmp_path: Path
) -> None:
    async with http_receiver("hang") as receiver:
        hook = f"""
[channels.hook]
url = "webhook+http://{HOST}:{receiver.port}/in"
secret = "0123456789abcdef-secret"
"""
        async with running_stack(tmp_path, temporal_address, config=CONFIG + hook) as stack:
            key = fresh_key("unknown")
            script = call("message", channel="hook", recipient="anyone", text="hook-needle")
            ticket = await stack.client.send(key, f"{script}\n/say {{{{1}}}}")
            await asyncio.wait_for(receiver.arrived.wait(), TIMEOUT)
            stack.worker.kill()
            assert await ledger(stack, key) == [(DeliveryState.BEGUN, "PUBLIC", "PUBLIC")]
            stack.worker.start()
            result = await stack.client.wait(key, ticket.message_id, timeout=TIMEOUT)
            assert json.loads(result.text)["status"] == "unknown"
            assert await ledger(stack, key) == [(DeliveryState.UNKNOWN, "PUBLIC", "PUBLIC")]
            assert len(receiver.requests) == 1
            assert b"hook-needle" in receiver.requests[0].body

            # The next one is delivered, and signed.
            again = call("message", channel="hook", recipient="anyone", text="second-needle")
            told = json.loads((await ask(stack, key, again, "/say {{1}}")).text)
            assert told["status"] == "sent"
            assert len(receiver.requests) == 2
