"""Examples of everything that is sent and answered, for the OpenAPI document.

Invariant: an example is an instance of what it is an example of, so it cannot be wrong in form.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pydantic import BaseModel

from activities.steering import Replaced
from gateway.contexts import ContextNode, ContextSummary, ContextTree, RawStretch, SeenContext
from gateway.contexts import SeenMessage as Seen
from gateway.http.approvals import ApprovalPage, Consent, Refusal
from gateway.http.contexts import ExpandedPage
from gateway.http.keys import ApiKeyPage, WantedKey
from gateway.http.memory import MemoryEntries, NewMemory, Pinned
from gateway.http.messages import Admission, MessagePage, NewMessage
from gateway.http.runs import RunPage, Steering, TreePage
from gateway.http.search import FoundPage
from gateway.http.service import Agent, AgentList, Alive, Ready
from gateway.http.sessions import Interrupted, Reset, SessionPage
from gateway.http.tell import Telling
from gateway.keys import NewApiKey
from gateway.runs import KilledRun
from perdure.delegation.results import Condensation, RunResult, Stats
from perdure.domain.access import Scope as AccessScope
from perdure.domain.approvals import Approval, ApprovalState
from perdure.domain.exchanges import Answered, ExchangeStats, ExchangeStatus, Mode, Sent
from perdure.domain.keys import Kind
from perdure.domain.labels import Label
from perdure.domain.memory import (
    MemoryEntry,
    MemoryHit,
    MemoryResults,
    MemoryStats,
    MemoryType,
    Origin,
    Stored,
    Trust,
)
from perdure.domain.messages import Role, Usage
from perdure.domain.runs import EndReason, RunStatus
from perdure.domain.states import SessionState, ToolStatus, TurnState
from perdure.shapes import SessionStatus, SessionSummary, Tokens
from perdure.store.context_search import ContextFound, ContextHit
from perdure.store.context_search import Kind as HitKind
from perdure.store.keys import ApiKey
from perdure.store.run_trees import RunNode, SessionTree
from perdure.store.run_views import RunView
from perdure.store.search import Lane, MessageHit
from perdure.store.sweeps import SweepState
from perdure.store.transcript import HistoryMessage, ToolUse, TurnResult

_AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
_KEY = "default:bob"
_ULID = "01KB7ZJ3T9V0S7F4M2Q8R6X1YC"
_RUN, _RUN_KEY = f"run_main_{_ULID}", f"{_KEY}~agent~main~run~run_main_{_ULID}"
_SUMMARY = "sum_9f86d081884c7d659a2feaa0"
_CURSOR = "eyJvZiI6Im1lc3NhZ2VzIiwic2VxIjo0MX0"

_message = HistoryMessage(
    id="order-4711",
    seq=41,
    role=Role.USER,
    text="Read the report and tell me what is missing.",
    label=Label.PUBLIC,
    at=_AT,
)
_turn = TurnResult(
    message_id="order-4711",
    session_key=_KEY,
    turn=3,
    state=TurnState.COMPLETED,
    text="The figures of March are missing.",
    label=Label.PUBLIC,
    steps=2,
    tools=(ToolUse(name="read", status=ToolStatus.OK),),
    usage=Usage(input_tokens=1_840, output_tokens=64, cost=0.0065),
)
_session = SessionSummary(
    session_key=_KEY,
    agent="main",
    kind=Kind.DM,
    channel=None,
    user="bob",
    state=SessionState.IDLE,
    label=Label.PUBLIC,
    message_count=6,
    last_activity=_AT,
    created_at=_AT - timedelta(hours=1),
)
_run = RunView(
    run_id=_RUN,
    agent="main",
    session_key=_RUN_KEY,
    parent_key=_KEY,
    status=RunStatus.RUNNING,
    end_reason=None,
    task="Compare the two offers.",
    step=2,
    max_steps=50,
    last_tool="read",
    depth=1,
    started_at=_AT,
    runtime_ms=4_200,
    tokens=2_310,
    label=Label.PUBLIC,
)
_approval = Approval(
    id=f"apr_{_ULID}",
    session_key=_KEY,
    turn=3,
    step=1,
    call=0,
    tool="message",
    arguments='{"channel": "staff", "text": "The report is done."}',
    digest="0f6a1b7c",
    asked_by="rule:ask-before-sending",
    reason="Messages to staff need a person's word.",
    state=ApprovalState.PENDING,
    asked_at=_AT,
    expires_at=_AT + timedelta(days=1),
)
_memory = MemoryEntry(
    id="mem_9f86d081884c7d65",
    tenant="default",
    agent="main",
    path="memory/team/deploys",
    content="Deploys go out on Tuesdays.",
    tags=("team",),
    created_at=_AT,
    origin=Origin.PERSON,
)
_node = ContextNode(
    id=_SUMMARY,
    depth=0,
    first_seq=1,
    last_seq=38,
    earliest_at=_AT - timedelta(hours=1),
    latest_at=_AT,
    messages=38,
    tokens=640,
    source_tokens=9_120,
    label=Label.PUBLIC,
    fallback=False,
    from_turn=3,
    until_turn=None,
    excerpt="Bob wants the report completed; the figures of March are missing.",
)
_raw = RawStretch(first_seq=39, last_seq=42, messages=4, tokens=210, earliest_at=_AT, latest_at=_AT)

_key = ApiKey(
    id="a1b2c3d4e5f6",
    name="support bot",
    tenant="acme",
    scopes=(AccessScope.CHAT,),
    clearance=Label.PUBLIC,
    rate=600,
    created_at=_AT,
    last_used=_AT + timedelta(hours=1),
)

_ALL: tuple[BaseModel, ...] = (
    Alive(),
    Ready(),
    AgentList(
        agents=(
            Agent(
                name="main",
                models=("rehearsal",),
                tools=("files", "memory"),
                clearance=Label.CONFIDENTIAL,
                default=True,
            ),
        )
    ),
    NewMessage(text="Read the report and tell me what is missing.", wait=True, timeout=30),
    Admission(message_id="order-4711", session_key=_KEY, status="admitted"),
    _turn,
    MessagePage(session_key=_KEY, messages=(_message,), total=42, has_more=True, next=_CURSOR),
    SessionPage(sessions=(_session,), total=1),
    SessionStatus(
        **_session.model_dump(include={"session_key", "agent", "kind", "channel", "user"}),
        model="rehearsal",
        state=SessionState.IDLE,
        label=Label.PUBLIC,
        clearance=Label.CONFIDENTIAL,
        turns=3,
        steps=4,
        tokens=Tokens(input=5_020, output=310, total=5_330),
        cost=0.02,
        started_at=_AT - timedelta(hours=1),
        duration_ms=3_600_000,
        children=1,
        pending=0,
    ),
    Interrupted(turn=3),
    Reset(dropped=1),
    Telling(to="default:alice", text="The report is done.", mode=Mode.WAIT, timeout=30),
    Answered(
        status=ExchangeStatus.REPLIED,
        response="Thank you.",
        stats=ExchangeStats(runtime_ms=900, tokens=120, cost=None),
    ),
    Sent(message_id=f"msg_{_ULID}"),
    FoundPage(
        hits=(
            MessageHit(
                session_key=_KEY,
                message_id="order-4711",
                seq=41,
                role=Role.USER,
                snippet="Read the **report** and tell me what is missing.",
                score=1.2,
                label=Label.PUBLIC,
                at=_AT,
            ),
        ),
        total=1,
        lane=Lane.FTS,
    ),
    RunPage(runs=(_run,), total=1),
    _run,
    TreePage(
        sessions=(
            SessionTree(
                **_session.model_dump(
                    include={"session_key", "agent", "kind", "state", "label", "last_activity"}
                ),
                turns=3,
                steps=4,
                tokens=5_330,
                last_tool="sessions_spawn",
                runs=(RunNode(**_run.model_dump(), queued_at=_AT, ended_at=None),),
            ),
        ),
        total=1,
    ),
    RunResult(
        run_id=_RUN,
        session_key=_RUN_KEY,
        status=RunStatus.COMPLETED,
        end_reason=EndReason.COMPLETED,
        response="The second offer is cheaper from the third year on.",
        condensation=Condensation(level=1, original_tokens=14, tokens=14),
        stats=Stats(runtime_ms=9_100, steps=4, tokens=4_020, cost=None),
    ),
    Steering(text="Leave out the first year."),
    Replaced(old_run_id=_RUN, new_run_id="run_main_01KB7ZK5QD3N8W1H6T4Y2B9ZRA"),
    KilledRun(run_id=_RUN, killed=True, descendants=0, status=RunStatus.STOPPING),
    ApprovalPage(approvals=(_approval,), total=1),
    _approval,
    Consent(reason="Fine, but to the team.", arguments={"channel": "team", "text": "Done."}),
    Refusal(reason="Not before Friday."),
    ContextTree(
        session_key=_KEY,
        epoch=0,
        turn=3,
        tokens=850,
        budget=180_000,
        threshold=135_000,
        messages=42,
        summarised=38,
        sweeps=SweepState(),
        items=(_node, _raw),
    ),
    SeenContext(
        session_key=_KEY,
        turn=3,
        epoch=0,
        tokens=850,
        budget=180_000,
        cut=False,
        messages=(
            Seen(
                **_message.model_dump(),
                kind="message",
                tool_call_id=None,
                tool_name=None,
                tokens=12,
            ),
        ),
    ),
    ContextSummary(
        **_node.model_dump(exclude={"kind", "excerpt", "children"}),
        session_key=_KEY,
        epoch=0,
        text="Bob wants the report completed; the figures of March are missing.",
    ),
    ExpandedPage(id=_SUMMARY, messages=(_message,), expected=38, next=_CURSOR),
    ContextFound(
        hits=(
            ContextHit(
                kind=HitKind.MESSAGE,
                id="order-4711",
                rank=1,
                snippet="Read the **report** and tell me what is missing.",
                at=_AT,
                summary_id=_SUMMARY,
                label=Label.PUBLIC,
            ),
        ),
        lane=Lane.FTS,
    ),
    MemoryResults(
        results=(
            MemoryHit(
                **_memory.model_dump(include={"id", "path", "tags", "created_at"}),
                preview=_memory.content,
                score=0.83,
                memory_type=MemoryType.SEMANTIC,
                trust=Trust.LEARNED,
                label=Label.PUBLIC,
            ),
        ),
        total=12,
    ),
    MemoryStats(
        entries=12,
        pinned=1,
        superseded=2,
        by_agent={"main": 12},
        by_label={"PUBLIC": 12},
        by_type={"semantic": 12},
        by_trust={"learned": 12},
        embedder="e5-small",
        not_embedded=0,
    ),
    MemoryEntries(entries=(_memory,), total=1),
    _memory,
    NewMemory(content=_memory.content, key="team/deploys", tags=("team",)),
    Stored(id=_memory.id, path=_memory.path, new=True),
    Pinned(id=_memory.id, pinned=True, changed=True),
    _key,
    NewApiKey(**_key.model_dump(), text=f"pdr_{_key.id}_<secret>"),
    ApiKeyPage(keys=(_key,), total=1),
    WantedKey(name=_key.name, scopes=_key.scopes, tenant=_key.tenant),
)

#: By the name of what they are examples of, as the document has it.
EXAMPLES = {type(one).__name__: one for one in _ALL}
