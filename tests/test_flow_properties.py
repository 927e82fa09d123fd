"""Whatever a session is talked into, no content reaches a place below its level.

A model that sends on everything it reads, on purpose and everywhere, against the real rooms: tool
calls, guard, claims, approvals, workspace, courier and ledger. Only Temporal and the provider are
left out, and what they do, the test does: it carries the label from call to call.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from temporalio.client import Client
from temporalio.testing import ActivityEnvironment

from activities.bindings import Bindings
from activities.exchanges import Messaging
from activities.post import Post
from activities.roster import Roster
from activities.toolboxes import Toolboxes
from activities.tools import ToolCalls
from perdure.channels.courier import Courier
from perdure.config import Settings, load_settings
from perdure.domain.approvals import ApprovalState
from perdure.domain.envelopes import Envelope
from perdure.domain.labels import Label, can_flow, join, meet
from perdure.domain.messages import ToolCall
from perdure.domain.states import TurnState
from perdure.domain.steps import OpenSession, SessionReset, StepRequest, ToolOutcome, ToolRequest
from perdure.guard import Guard
from perdure.sources import Sources
from perdure.store import Store
from perdure.store.audit import verify
from perdure.store.turns import StepAnswer
from perdure.workspace import Workspace
from tests.support.policed import CONFIG, rule

CHANNELS = {"public": Label.PUBLIC, "staff": Label.INTERNAL, "board": Label.CONFIDENTIAL}
RECIPIENTS = {
    "public": {"anyone": Label.RESTRICTED},
    "staff": {"team": Label.INTERNAL},
    "board": {"chair": Label.CONFIDENTIAL},
}
#: Sessions, and what those may read who get their answers.
KEYS = {
    "default:bob": Label.CONFIDENTIAL,
    "default:bob~peer~chair~channel~board": Label.CONFIDENTIAL,
    "default:bob~peer~stranger~channel~board": Label.PUBLIC,
    "default:bob~peer~team~channel~staff": Label.INTERNAL,
    "default:bob~channel~gone": Label.PUBLIC,
}
FOLDERS = {
    "open": Label.PUBLIC,
    "staff": Label.INTERNAL,
    "finance": Label.CONFIDENTIAL,
    "vault": Label.RESTRICTED,
}
RULES = (
    rule("ask-team", "PRE_OUTPUT", "REQUIRE_APPROVAL", ("recipient", "in", ["team", "chair"]))
    + rule("ask-write", "PRE_TOOL_CALL", "REQUIRE_APPROVAL", ("args.path", "equals", "plan.md"))
    + rule("allow", "PRE_TOOL_CALL", "ALLOW", priority=2000)
    + rule("mask", "POST_TOOL_RESPONSE", "REDACT", ("tool", "equals", "grep"), pattern="lion")
)

SECRET = Label.CONFIDENTIAL
folders = st.sampled_from(sorted(FOLDERS))
names = st.sampled_from(["a.md", "plan.md", "notes/b.md", "alias.md", "linked/b.md"])
paths = names | folders.map(lambda folder: f"{folder}/seed.md")
places = st.sampled_from(
    [(channel, name) for channel in CHANNELS for name in (*RECIPIENTS[channel], "stranger")]
)
operations = st.one_of(
    st.tuples(st.just("read"), paths),
    st.tuples(st.just("edit"), paths),
    st.tuples(st.just("grep"), st.sampled_from([".", "open", "finance", "notes", "alias.md"])),
    st.tuples(st.just("ls"), st.sampled_from([".", "notes", "finance"])),
    st.tuples(st.just("write"), paths),
    st.tuples(st.just("scribble"), names),
    st.sampled_from([("big", None), ("big", None), ("read", "finance/seed.md")]),
    st.sampled_from([("write", "a.md"), ("write", "linked/b.md"), ("tool", "ledger")]),
    st.tuples(st.just("tool"), st.sampled_from(["ledger", "vault", "bogus"])),
    st.tuples(st.just("message"), places),
    st.tuples(st.just("hear"), st.sampled_from(list(Label)[:3])),
    st.tuples(st.just("answer"), st.none()),
    st.tuples(st.just("reset"), st.none()),
)


@dataclass
class Session:
    """A session as its workflow and its model hold it: the live label, and all that was read."""

    key: str
    store: Store
    guard: Guard
    tools: ToolCalls
    settings: Settings
    approve: Iterator[bool]
    label: Label = Label.PUBLIC
    turn: int = 0
    #: Every needle there is, with its level.
    needles: dict[str, Label] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)
    #: What was let out as an answer, with the level of who reads it.
    answers: list[tuple[str, Label]] = field(default_factory=list)

    @property
    def workspace(self) -> Workspace:
        return Workspace.for_session(self.settings.home, self.key)

    @property
    def everything(self) -> str:
        return " ".join(sorted(self.known)) or "nothing"

    def needle(self, label: Label) -> str:
        """A word that occurs nowhere else."""
        word = f"needle{len(self.needles):03}zebra"
        self.needles[word] = label
        return word

    def learn(self, text: str) -> None:
        self.known |= {word for word in self.needles if word in text}

    async def begin(self, label: Label = Label.PUBLIC, text: str = "go") -> StepRequest:
        """Take a message."""
        self.turn += 1
        envelope = Envelope(message_id=f"m{self.turn}", label=label)
        await self.store.mailbox.post(self.key, envelope, text)
        self.label = join(self.label, label)
        self.learn(text)
        request = self._step()
        await self.store.turns.begin_step(request)
        return request

    def _step(self) -> StepRequest:
        return StepRequest(
            session_key=self.key,
            agent="main",
            turn=self.turn,
            step=1,
            message_id=f"m{self.turn}",
            label=self.label,
        )

    async def say(self, request: StepRequest, text: str) -> None:
        """End the turn with an answer, as far as it may leave."""
        judged = self.guard.answer(request, text)
        answer = StepAnswer(text=judged.text, model="x", ended=TurnState.COMPLETED)
        await self.store.turns.commit_step(request, answer, judged.entries)
        self.answers.append((judged.text, KEYS[self.key]))

    async def call(self, tool: str, **arguments: Any) -> None:
        """A turn of one tool call; a person decides where one is asked."""
        request = await self.begin()
        made = ToolCall(id="c", name=tool, arguments=json.dumps(arguments))
        await self.store.turns.commit_step(
            request, StepAnswer(text="", tool_calls=(made,), model="x")
        )
        outcome = await self._run()
        if outcome.waiting is not None:
            await self.store.approvals.decide(
                outcome.waiting.approval_id, approve=next(self.approve), by="ada"
            )
            outcome = await self._run()
            assert outcome.waiting is None
        self.label = join(self.label, outcome.label)
        page = await self.store.transcript.page(self.key, 1, 0)
        self.learn(page.messages[0].text)

    async def _run(self) -> ToolOutcome:
        request = ToolRequest(
            session_key=self.key, agent="main", turn=self.turn, step=1, call=0, label=self.label
        )
        outcome: ToolOutcome = await ActivityEnvironment().run(self.tools.run_tool, request)
        return outcome

    async def reset(self) -> None:
        await self.store.sessions.reset(
            SessionReset(session_key=self.key, request_id=f"r{self.turn}")
        )
        self.label = Label.PUBLIC
        self.known = set()


async def act(session: Session, operation: str, about: Any) -> None:
    """One thing that happens to a session, or that its model does with all it knows."""
    text = session.everything
    match operation:
        case "read":
            await session.call("read", path=about)
        case "edit":
            await session.call("edit", path=about, old="zebra", new=f"zebra {text}")
        case "grep":
            await session.call("grep", pattern="needle", path=about)
        case "ls":
            await session.call("ls", path=about)
        case "write":
            await session.call("write", path=about, content=text)
        case "scribble":
            await session.call("scribble", name=about, text=text)
        case "big":
            await session.call("tell", text=f"{text} ", times=3_000 // len(text) + 1)
        case "tool":
            await session.call(about)
        case "message":
            await session.call("message", channel=about[0], recipient=about[1], text=text)
        case "hear":
            await session.begin(about, session.needle(about))
        case "answer":
            await session.say(await session.begin(), text)
        case "link":
            await asyncio.to_thread(_link, session.workspace.root, about)
        case "reset":
            await session.reset()


def _link(root: Path, target: str) -> None:
    """A person lays links into the workspace."""
    for name, leads in (("alias.md", target), ("linked", "notes")):
        place = root / name
        if not place.exists() and not place.is_symlink():
            place.symlink_to(leads)


def ways_back(root: Path) -> list[tuple[str, str]]:
    """How a session may come to a file: by its name, by links, by a search."""
    files = [path.relative_to(root) for path in root.rglob("*") if path.is_file()]
    reads = [str(path) for path in files if path.name != "seed.md"]
    return [("grep", "."), ("grep", "notes"), *(("read", path) for path in [*reads, "linked/b.md"])]


def check(session: Session) -> None:
    """Nothing lies, or was read, below its level."""
    clearance = session.settings.agent().clearance
    for word in session.known:
        assert can_flow(session.needles[word], session.label), (word, session.label)
        assert can_flow(session.needles[word], clearance)
    places = list(session.answers)
    for channel, level in CHANNELS.items():
        file = session.settings.home / "out" / f"{channel}.jsonl"
        for line in file.read_text().splitlines() if file.exists() else ():
            sent = json.loads(line)
            reader = RECIPIENTS[channel].get(sent["recipient"], Label.PUBLIC)
            places.append((sent["text"], meet(level, reader)))
    for text, level in places:
        for word, label in session.needles.items():
            assert word not in text or can_flow(label, level), (word, label, level)


@asynccontextmanager
async def opened(home: Path, key: str, approve: list[bool]):  # type: ignore[no-untyped-def]
    (home / "perdure.toml").write_text(f"{CONFIG}\n[limits]\ntool_result_bytes = 2000\n{RULES}")
    settings_ = load_settings(home, {})
    store = await Store.open(settings_.store_url, settings_.audit_files)
    try:
        guard, roster = Guard(settings_), Roster(settings_, store, Toolboxes(settings_))
        # Nothing here reaches another session: no server has to be there.
        post = Post(await Client.connect("127.0.0.1:1", lazy=True), "none")
        courier = Courier(store, settings_.channels, home)
        messaging = Messaging(settings_, store, post)
        sources = Sources({}, settings_.home)
        bindings = Bindings(settings_, store, roster, guard, courier, post, messaging, sources)
        tools = ToolCalls(settings_, store, roster, guard, bindings)
        await store.sessions.open(OpenSession(session_key=key, agent="main"))
        decisions = iter([*approve, *[True] * 100])
        yield Session(key, store, guard, tools, settings_, decisions)
    finally:
        await store.close()


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    script=st.lists(operations, min_size=4, max_size=16),
    approve=st.lists(st.booleans(), max_size=6),
    key=st.sampled_from(sorted(KEYS)),
    alias=paths,
)
@example(
    [("tool", "ledger"), ("hear", SECRET), ("write", "linked/b.md")], [], "default:bob", "a.md"
)
@example([("hear", SECRET), ("edit", "alias.md"), ("big", None)], [], "default:bob", "open/seed.md")
def test_no_content_reaches_a_place_below_its_level(
    tmp_path_factory: pytest.TempPathFactory,
    script: list[tuple[str, Any]],
    approve: list[bool],
    key: str,
    alias: str,
) -> None:
    asyncio.run(_play(tmp_path_factory.mktemp("flow"), script, approve, key, alias))


async def _play(
    home: Path, script: list[tuple[str, Any]], approve: list[bool], key: str, alias: str
) -> None:
    async with opened(home, key, approve) as session:
        for folder, label in FOLDERS.items():
            session.workspace.write(f"{folder}/seed.md", session.needle(label))
        await act(session, "link", alias)
        for operation, about in script:
            await act(session, operation, about)
            check(session)
        # At last every way back to what it ever wrote, each from PUBLIC, and on to everybody.
        await act(session, "answer", None)
        for route, about in ways_back(session.workspace.root):
            await act(session, "reset", None)
            await act(session, route, about)
            for place in (("public", "anyone"), ("board", "stranger"), ("staff", "team")):
                await act(session, "message", place)
            await act(session, "answer", None)
            check(session)
        states = await session.store.approvals.list(state=ApprovalState.PENDING)
        assert states.total == 0
        assert (await verify(session.store.database, session.settings.audit_files)).valid
