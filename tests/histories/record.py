"""Records the histories that `tests/promises/test_replay.py` replays: `make histories`.

Each scenario runs on a real server with a real worker, and every workflow run that it made is kept
as `NAME.NUMBER.json`, in the form of `temporal workflow show --output json`, without what only
names the machine; those of a run that the session has spawned, as `NAME.childN.NUMBER.json`. Record
anew when the workflows have changed on purpose; a history that was kept
from a released version must stay and must replay.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from temporalio.client import WorkflowExecution

from activities.post import workflow_id
from perdure.domain.envelopes import Envelope
from perdure.domain.replies import ReplyTo
from perdure.domain.states import EventKind
from tests.histories import runs
from tests.support import watching
from tests.support.sending import deliver, signal
from tests.support.stack import Stack, fresh_key, running_stack, server, until

FOLDER = Path(__file__).parent
TIMEOUT = 60
#: Where answers leave to.
OUT = ReplyTo(channel="out", recipient="bob")

_TOOLS = ", ".join(
    f'"tests.support.user_tools:{name}"' for name in ("late", "early", "pay", "add_async")
)
CONFIG = f"""
[agents.main]
tools = ["files", "sessions", "subagents", {_TOOLS}]
{runs.AGENTS}
[channels.out]
url = "file:replies.jsonl"
[limits]
step_attempts = 3
turns_per_run = 4
children = 2
"""

_PROCESS = re.compile(r"\d+@[\w.-]+")


async def plain(stack: Stack, key: str) -> None:
    for number in range(3):
        await ask(stack, key, f"/say {number}")


async def tools(stack: Stack, key: str) -> None:
    await ask(
        stack,
        key,
        '/write {"path": "a", "content": "b"}\n---\n/read {"path": "a"}\n---\n'
        '/add_async {"a": 1}\n---\n/no_such_tool {}\n/say done',
    )


async def parallel(stack: Stack, key: str) -> None:
    """In each turn the tools end in another order than they were called."""
    await ask(stack, key, "/late {}\n/ls {}\n/early {}\n/say one")
    await ask(stack, key, '/add_async {"a": 1}\n/ls {}\n/add_async {"a": 2}\n/ls {}\n/say two')


async def interrupted(stack: Stack, key: str) -> None:
    """In a model call, and in a tool, with a message waiting behind each."""
    for script in ("/sleep 600\n/say never", "/late {}\n/ls {}\n/say never"):
        stopped = await stack.client.send(key, script)
        waits = await stack.client.send(key, "/say next")
        await began(stack, key, stopped.message_id, "late" if "late" in script else None)
        await stack.client.interrupt(key)
        await stack.client.wait(key, waits.message_id, timeout=TIMEOUT)


async def reset(stack: Stack, key: str) -> None:
    """While a turn runs and a message waits, and once more at rest."""
    running = await stack.client.send(key, "/sleep 600\n/say never")
    await stack.client.send(key, "/say dropped")
    await began(stack, key, running.message_id)
    await stack.client.reset(key)
    await ask(stack, key, "/say after")
    await stack.client.reset(key)
    await ask(stack, key, "/say again")


async def reopened(stack: Stack, key: str) -> None:
    await ask(stack, key, "/say one")
    await stack.client.close(key)
    await ask(stack, key, "/say two")
    await stack.client.send(key, "/sleep 0.5\n/say three")
    await stack.client.close(key)


async def continued(stack: Stack, key: str) -> None:
    """Through several runs, also with messages waiting."""
    for number in range(5):
        await ask(stack, key, f"/say {number}")
    last = [await stack.client.send(key, f"/ls {{}}\n/say {number}") for number in range(6)][-1]
    await stack.client.wait(key, last.message_id, timeout=TIMEOUT)
    await ask(stack, key, "/say end")


async def failed(stack: Stack, key: str) -> None:
    """A step that fails for good at once, one that is tried until it is over, one that recovers."""
    for script in ("/fail auth 1", "/fail server_error 9", "/fail timeout 1\n/say in the end"):
        await ask(stack, key, script)


async def signalled(stack: Stack, key: str) -> None:
    """By a good signal, twice, by nonsense, and by one whose text is missing."""
    await ask(stack, key, "/say start")
    await signal(stack, key)
    await signal(stack, key, {"message_id": 5}, "more")
    envelope = Envelope(message_id="signalled")
    await deliver(stack, key, "/say signalled", envelope)
    await signal(stack, key, envelope)
    await signal(stack, key, Envelope(message_id="ghost"))
    await ask(stack, key, "/say end")


async def terminated(stack: Stack, key: str) -> None:
    """The next run ends what was cut off, and answers what waited."""
    running = await stack.client.send(key, "/sleep 600\n/say never")
    await stack.client.send(key, "/say waited")
    await began(stack, key, running.message_id)
    await stack.client.temporal.get_workflow_handle(workflow_id(key)).terminate()
    await ask(stack, key, "/say after")


async def killed(stack: Stack, key: str) -> None:
    """The worker dies in a model call, and in a tool whose outcome nobody knows then."""
    running = await stack.client.send(key, "/sleep 1\n/say survived")
    await began(stack, key, running.message_id)
    stack.worker.kill()
    stack.worker.start()
    await stack.client.wait(key, running.message_id, timeout=TIMEOUT)
    running = await stack.client.send(key, "/pay {}\n/ls {}\n/say survived")
    await began(stack, key, running.message_id, "pay")
    stack.worker.kill()
    stack.worker.start()
    await stack.client.wait(key, running.message_id, timeout=TIMEOUT)


async def waited(stack: Stack, key: str) -> None:
    """For another session: answered, too late, taken back, interrupted."""
    other = await partner(stack)
    await ask(stack, key, f"{send(other, '/say yes', mode='wait')}\n/say {{{{1.status}}}}")
    late = send(other, "/sleep 1\n/say late", mode="wait", timeout_ms=500)
    await ask(stack, key, f"{late}\n/say {{{{1.status}}}}")
    await until(lambda: heard(stack, key, other))
    busy = await stack.client.send(other, "/sleep 600\n/say never")
    await began(stack, other, busy.message_id)
    never = send(other, "/say never", mode="wait", timeout_ms=500)
    await ask(stack, key, f"{never}\n/say {{{{1.status}}}}")
    asked = await stack.client.send(key, f"{send(other, 'never', mode='wait')}\n/say never")
    await began(stack, key, asked.message_id, "sessions_send")
    await stack.client.interrupt(key)
    await stack.client.interrupt(other)
    await ask(stack, key, "/say end")


async def talked(stack: Stack, key: str) -> None:
    """With another session in turns, with tools on the side thread and a call beside it."""
    other = await partner(stack)
    first = send(other, "/say /say /say end", mode="ping-pong", max_turns=3)
    await ask(stack, key, f"{first}\n/ls {{}}\n/say one")
    second = send(other, '/say /ls {"path": "."}', mode="ping-pong", max_turns=1)
    await ask(stack, key, f"{second}\n/say two")
    await ask(stack, key, f"{send(other, 'bye')}\n/say three")


async def answered(stack: Stack, key: str) -> None:
    """As the one that others send to and wait for, also while it is reset."""
    other = await partner(stack)
    await ask(stack, key, "/say here")
    await ask(stack, other, f"{send(key, '/say yes', mode='wait')}\n/say one")
    await ask(stack, other, f"{send(key, '/say more', mode='ping-pong', max_turns=2)}\n/say two")
    running = await stack.client.send(key, "/sleep 600\n/say never")
    await began(stack, key, running.message_id)
    asked = await stack.client.send(other, f"{send(key, 'never', mode='wait')}\n/say three")
    await began(stack, other, asked.message_id, "sessions_send")
    await until(lambda: holds_one(stack, key))
    await stack.client.reset(key)
    await stack.client.wait(other, asked.message_id, timeout=TIMEOUT)
    await ask(stack, key, "/say end")


async def replied(stack: Stack, key: str) -> None:
    """Its answers leave by a channel, in several runs; one is interrupted, one leads nowhere."""
    for number in range(5):
        await leaves(stack, key, f"{number}", f"/say {number}")
    running = await stack.client.deliver(key, "/sleep 600", reply_to=OUT)
    await began(stack, key, running.message_id)
    await stack.client.interrupt(key)
    await leaves(stack, key, "nowhere", "/say x", ReplyTo(channel="gone", recipient="bob"))
    await stack.client.close(key)
    await leaves(stack, key, "reopened", "/say end")


SCENARIOS: dict[str, Callable[[Stack, str], Awaitable[None]]] = {
    scenario.__name__: scenario
    for scenario in (
        *(plain, tools, parallel, interrupted, reset, reopened),
        *(continued, failed, signalled, terminated, killed),
        *(waited, talked, answered, replied),
        *runs.SCENARIOS,
    )
}


async def ask(stack: Stack, key: str, text: str) -> None:
    await stack.client.ask(key, text, timeout=TIMEOUT)


async def leaves(
    stack: Stack, key: str, message_id: str, text: str, reply_to: ReplyTo = OUT
) -> None:
    """Have a message answered, and its answer leave."""
    await stack.client.deliver(key, text, message_id=message_id, reply_to=reply_to)

    async def settled() -> bool:
        return await stack.client.store.replies.owed(key, message_id) is None

    await until(settled)


async def partner(stack: Stack) -> str:
    """Another session, whose history is not kept."""
    key = fresh_key("partner")
    await ask(stack, key, "/say here")
    return key


def send(target: str, text: str, **more: Any) -> str:
    """A directive that sends."""
    return f"/sessions_send {json.dumps({'session_key': target, 'text': text, **more})}"


async def heard(stack: Stack, key: str, sender: str) -> bool:
    told = [one for one in await watching.transcript(stack, key) if one.from_session == sender]
    turns = [await stack.client.store.transcript.turn_of(key, one.id) for one in told]
    return any(turn is not None and turn.state != "running" for turn in turns)


async def holds_one(stack: Stack, key: str) -> bool:
    return (await stack.client.status(key)).pending == 1


async def began(stack: Stack, key: str, message_id: str, tool: str | None = None) -> None:
    """Wait until the turn of a message calls the model, or a tool."""
    wanted = EventKind.TOOL_STARTED if tool else EventKind.STEP_STARTED

    async def begun() -> bool:
        result = await stack.client.store.transcript.turn_of(key, message_id)
        return result is not None and any(
            event.turn == result.turn and event.payload.get("tool") == tool
            for event in await watching.events(stack, key, wanted)
        )

    await until(begun)


async def histories(stack: Stack, key: str) -> list[str]:
    """Every run of a session, oldest first, as JSON."""
    temporal = stack.client.temporal
    newest = (await temporal.get_workflow_handle(workflow_id(key)).describe()).run_id
    found: list[WorkflowExecution] = []

    async def all_listed() -> bool:
        query = f"WorkflowId = '{workflow_id(key)}'"
        found[:] = [execution async for execution in temporal.list_workflows(query)]
        return newest in [execution.run_id for execution in found]

    await until(all_listed)
    found.sort(key=lambda execution: execution.start_time)
    handles = [temporal.get_workflow_handle(run.id, run_id=run.run_id) for run in found]
    return [(await handle.fetch_history()).to_json() for handle in handles]


def anonymous(history: str) -> str:
    """A history without stack traces, process ids and host names."""

    def clean(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: clean(part) for name, part in value.items() if name != "stackTrace"}
        if isinstance(value, list):
            return [clean(part) for part in value]
        return _PROCESS.sub("1@worker", value) if isinstance(value, str) else value

    return json.dumps(clean(json.loads(history)), indent=1, ensure_ascii=False) + "\n"


def keep(folder: Path, name: str, recorded: list[str]) -> None:
    """Replace the kept histories of a scenario."""
    for old in folder.glob(f"{name}.*.json"):
        old.unlink()
    for number, history in enumerate(recorded, 1):
        (folder / f"{name}.{number}.json").write_text(anonymous(history))
    print(f"{name}: {len(recorded)} runs")


async def record(folder: Path) -> None:
    """Run every scenario and keep its histories in `folder`, instead of what was there."""
    home = Path(tempfile.mkdtemp())
    try:
        async with (
            server(home / "temporal") as address,
            running_stack(home / "home", address, config=CONFIG) as stack,
        ):
            for name, scenario in SCENARIOS.items():
                key = fresh_key(name)
                await scenario(stack, key)
                keep(folder, name, await histories(stack, key))
                children = (await stack.client.runs.list(key)).runs
                for number, child in enumerate(children, 1):
                    await watching.event(stack, child.session_key, EventKind.SESSION_CLOSED)
                    recorded = await histories(stack, child.session_key)
                    keep(folder, f"{name}.child{number}", recorded)
    finally:
        shutil.rmtree(home)


if __name__ == "__main__":
    asyncio.run(record(FOLDER))
