"""What stands behind each tool: a user's function, the workspace, the courier, the store.

Invariant: who calls is read off the request, never off the arguments.
"""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import BaseModel

from activities.context_tools import ContextTools
from activities.delegation import Delegation
from activities.exchanges import Messaging
from activities.looking_after import LookingAfter
from activities.memory_tools import MemoryTools
from activities.post import Post
from activities.roster import Roster
from activities.session_tools import SessionTools
from perdure.channels.courier import Courier
from perdure.config import Settings
from perdure.domain.errors import InvalidArgument
from perdure.domain.messages import Frozen
from perdure.domain.steps import ToolRequest
from perdure.guard import Guard
from perdure.policy.conditions import RuleOutcome
from perdure.policy.hooks import Action
from perdure.sources import Sources
from perdure.store import Store
from perdure.tools import ToolContext, ToolSpec
from perdure.tools.context import CtxExpand, CtxInspect, CtxSearch, Summarize
from perdure.tools.memory import MemoryGet, MemoryManage, MemorySearch, MemoryStore
from perdure.tools.message import Message
from perdure.tools.messaging import EndExchange, SessionsSend
from perdure.tools.policy import SimulateToolCall
from perdure.tools.sessions import SessionSearch, SessionsHistory, SessionsList, SessionStatus
from perdure.tools.sources import GivenArguments
from perdure.tools.subagents import SessionsSpawn, Subagents
from perdure.workspace import Workspace


class Simulated(Frozen):
    """The result of `simulate_tool_call`."""

    decision: Action
    decided_by: str
    rules_evaluated: tuple[RuleOutcome, ...]
    label_before: str
    label_after: str
    reason: str


class Bindings:
    """Runs a tool, once it is allowed."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        roster: Roster,
        guard: Guard,
        courier: Courier,
        post: Post,
        messaging: Messaging,
        sources: Sources,
    ) -> None:
        self._settings = settings
        self._store = store
        self._roster = roster
        self._guard = guard
        self._courier = courier
        self._session_tools = SessionTools(settings, store, roster, guard)
        self._context_tools = ContextTools(settings, store, roster, guard, self.workspace)
        self._delegation = Delegation(settings, store, roster, guard)
        self._looking_after = LookingAfter(settings, store, post)
        self._memory_tools = MemoryTools(settings, store, guard, self.workspace)
        self._messaging = messaging
        self._sources = sources

    async def call(self, request: ToolRequest, spec: ToolSpec, arguments: BaseModel) -> Any:
        """The tool's result, of any type that has a JSON form.

        Raises:
            PerdureError: what the model is to read.
            Exception: whatever a user's function raises.
        """
        if spec.server is not None:
            assert isinstance(arguments, GivenArguments), "as the catalogue says"
            return await self._sources.call(
                spec.server, spec.remote, arguments.root, _call_key(request)
            )
        toolbox = (await self._roster.of(request.session_key, request.agent)).toolbox
        user_tool = toolbox.users.get(spec.name)
        if user_tool is not None:
            return await user_tool.call(arguments, self._context(request))
        match arguments:
            case Message():
                return await self._message(request, arguments)
            case SimulateToolCall():
                return await self._simulate(request, arguments)
            case CtxSearch() | CtxInspect() | CtxExpand() | Summarize():
                return await self._context_tools.call(request, arguments)
            case MemoryStore() | MemorySearch() | MemoryGet() | MemoryManage():
                return await self._memory_tools.call(request, arguments)
            case SessionsSpawn():
                return await self._delegation.spawn(request, arguments)
            case Subagents():
                return await self._looking_after.do(request, arguments)
            case SessionStatus() | SessionsList() | SessionsHistory() | SessionSearch():
                return await self._session_tools.do(request, arguments)
            case SessionsSend():
                return await self._messaging.send(request, arguments)
            case EndExchange():
                return await self._messaging.end_exchange(request)
        operation = getattr(self.workspace(request), spec.name)
        return await asyncio.to_thread(operation, **arguments.model_dump())

    def workspace(self, request: ToolRequest) -> Workspace:
        """The files of the session that calls."""
        limits = self._settings.limits
        return Workspace.for_session(
            self._settings.home, request.session_key, limits.file_bytes, limits.tool_result_bytes
        )

    def _context(self, request: ToolRequest) -> ToolContext:
        return ToolContext(
            session_key=request.session_key,
            turn=request.turn,
            step=request.step,
            workspace=self.workspace(request).root,
            idempotency_key=_call_key(request),
        )

    async def _message(self, request: ToolRequest, message: Message) -> Any:
        return await self._courier.send(
            session_key=request.session_key,
            channel=message.channel,
            recipient=message.recipient,
            text=message.text,
            label=request.label,
            cause=f"{request.turn}/{request.step}/{request.call}",
            turn=request.turn,
            step=request.step,
        )

    async def _simulate(self, request: ToolRequest, asked: SimulateToolCall) -> Simulated:
        member = await self._roster.of(request.session_key, request.agent, request.turn)
        toolbox = member.toolbox
        spec = toolbox.specs.get(asked.tool_name)
        if spec is None:
            raise InvalidArgument(
                f"There is no tool named {asked.tool_name!r}.",
                f"Tools are {', '.join(toolbox.specs)}.",
            )
        look = await self._store.claims.look(request)
        decision = await asyncio.to_thread(
            self._guard.calls.simulate, request, spec, asked.args, look.labels
        )
        return Simulated(
            decision=decision.action,
            decided_by=decision.decided_by,
            rules_evaluated=decision.rules_evaluated,
            label_before=decision.label_before,
            label_after=decision.label_after,
            reason=decision.reason,
        )


def _call_key(request: ToolRequest) -> str:
    """The name of a call: the same on every attempt, and of no other call."""
    return f"{request.session_key}/{request.turn}/{request.step}/{request.call}"
