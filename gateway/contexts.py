"""Contexts for people: the DAG of a session's summaries, what stands below it, what a turn saw.

Invariant: nothing is changed, and no words above the caller's level are shown: in their place
stands that they are withheld.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from activities.roster import Roster
from activities.toolboxes import Toolboxes
from gateway.looking import question
from gateway.sight import Sight, no_session
from perdure.config import Settings
from perdure.context import Summary, assemble_view, estimate_tokens, history_budget
from perdure.context.planning import threshold_tokens
from perdure.context.presentation import PREFACE
from perdure.domain.errors import NotFound
from perdure.domain.keys import SessionKey
from perdure.domain.labels import Label, can_flow
from perdure.domain.messages import Frozen, Message
from perdure.shapes import ABOVE, readable_message
from perdure.store import Store
from perdure.store.context_search import ContextFound
from perdure.store.context_views import Stretch
from perdure.store.sweeps import SweepState
from perdure.store.transcript import HistoryMessage

#: Of a summary's text the tree shows this much, in characters.
EXCERPT = 120


class ContextNode(Frozen):
    """A summary, and what it was made of: `children` in order, nothing for a leaf.

    `tokens` is what it takes of a context, `source_tokens` what its sources took. `messages`
    counts all below it. `fallback` tells that no model wrote it. Turns see it from `from_turn` on,
    up to but without `until_turn`.
    """

    kind: Literal["summary"] = "summary"
    id: str
    depth: int
    first_seq: int
    last_seq: int
    earliest_at: datetime
    latest_at: datetime
    messages: int
    tokens: int
    source_tokens: int
    label: Label
    fallback: bool
    from_turn: int
    until_turn: int | None
    excerpt: str
    children: tuple[ContextNode, ...] = ()


class RawStretch(Stretch):
    """Messages that stand side by side in the context, as they are."""

    kind: Literal["raw"] = "raw"


class ContextTree(Frozen):
    """What the next turn of a session sees, oldest first, with everything below it.

    `tokens` is what it takes; `budget` what the history may take, and `threshold` what it must
    exceed to be compacted, both None where the agent is not configured any more. Of `messages` in
    this epoch, `summarised` lie below a summary.
    """

    session_key: str
    epoch: int
    turn: int
    tokens: int
    budget: int | None
    threshold: int | None
    messages: int
    summarised: int
    sweeps: SweepState
    items: tuple[Annotated[ContextNode | RawStretch, Field(discriminator="kind")], ...]


class SeenMessage(HistoryMessage):
    """A message as it was given to the model; what is no `message` was made for the context.

    Of a summary, `id` is the summary's and `seq` the first that it covers.
    """

    kind: Literal["message", "summary", "preface"]
    tool_call_id: str | None
    tool_name: str | None
    tokens: int


class SeenContext(Frozen):
    """What the model was given for the last answer of a turn, or what it is given so far.

    Rebuilt from what is kept, by the settings that are in force now: `cut` tells that some of it
    would not fit into `budget`. What rules on PRE_CONTEXT_INJECTION take out is in it.
    """

    session_key: str
    turn: int
    epoch: int
    tokens: int
    budget: int | None
    cut: bool
    messages: tuple[SeenMessage, ...]


class ContextSummary(Frozen):
    """A summary with its words, and the ids of the summaries that it was made of, in order."""

    id: str
    session_key: str
    epoch: int
    depth: int
    first_seq: int
    last_seq: int
    earliest_at: datetime
    latest_at: datetime
    messages: int
    tokens: int
    source_tokens: int
    label: Label
    fallback: bool
    from_turn: int
    until_turn: int | None
    text: str
    children: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Expansion:
    """The messages under a summary, or one message, read as they are asked for.

    `expected` is how many there are to be; of a summary whose messages are not all in the store
    any more, fewer come.
    """

    id: str
    expected: int
    messages: AsyncIterator[HistoryMessage]


class ContextClient:
    """Looks at the contexts of sessions, as `SessionClient.context`."""

    def __init__(self, settings: Settings, store: Store, sight: Sight) -> None:
        self._settings = settings
        self._store = store
        self._sight = sight
        self._level = sight.level
        self._roster = Roster(settings, store, Toolboxes(settings))

    async def tree(self, session_key: str) -> ContextTree:
        """What the next turn of a session sees, and the DAG below it.

        Raises:
            NotFound: when there is no such session.
        """
        await self._sight.session(session_key)
        drawn = await self._store.context_views.drawn(session_key)
        if drawn is None:
            raise no_session(session_key)
        known = {summary.id: summary for summary in drawn.tree.summaries}
        top = [summary for summary in known.values() if summary.until_turn is None]
        items: list[ContextNode | RawStretch] = [
            *(self._node(summary, known, drawn.tree.children) for summary in top),
            *(RawStretch(**stretch.model_dump()) for stretch in drawn.raw),
        ]
        budget = await self._budget(session_key, drawn.agent)
        return ContextTree(
            session_key=session_key,
            epoch=drawn.tree.epoch,
            turn=drawn.turn,
            tokens=sum(item.tokens for item in items),
            budget=budget,
            threshold=None if budget is None else threshold_tokens(budget, self._settings.context),
            messages=drawn.messages,
            summarised=sum(summary.messages for summary in top),
            sweeps=drawn.sweeps,
            items=tuple(sorted(items, key=lambda item: item.first_seq)),
        )

    async def summary(self, session_key: str, name: str) -> ContextSummary:
        """The summary `name`, of any epoch.

        Raises:
            NotFound: when the session has none of that id.
        """
        SessionKey.parse(session_key)
        hidden = await self._sight.hides(session_key)
        found = await self._store.nodes.summary(session_key, name)
        if found is None or hidden:
            raise _no_node(session_key, name)
        children = await self._store.nodes.children(session_key, name)
        fields = set(ContextSummary.model_fields) - {"text", "children"}
        shown = can_flow(found.label, self._level)
        return ContextSummary(
            **found.model_dump(include=fields),
            text=found.text if shown else ABOVE.format(found.label),
            children=tuple(child.id for child in children),
        )

    async def search(self, session_key: str, query: str, *, limit: int = 10) -> ContextFound:
        """Messages and summaries of the epoch a session is in that match, in turns, each best
        first; none above the caller's level.

        Raises:
            NotFound: when there is no such session.
            InvalidArgument: for a query that asks nothing.
        """
        await self._sight.session(session_key)
        epoch = await self._store.nodes.epoch(session_key)
        return await self._store.context_search.find(
            session_key, epoch or 0, question(query), self._level, limit=limit
        )

    async def expand(self, session_key: str, name: str, *, after: int = 0) -> Expansion:
        """The messages under the summary `name`, or the message of that id, of any epoch; those
        behind the sequence number `after`.

        Raises:
            NotFound: when the session has neither.
        """
        SessionKey.parse(session_key)
        hidden = await self._sight.hides(session_key)
        summary = await self._store.nodes.summary(session_key, name)
        if summary is not None and not hidden:
            return Expansion(name, summary.messages, self._below(summary, after))
        message = await self._store.transcript.message(session_key, name)
        if message is None or hidden:
            raise _no_node(session_key, name)
        return Expansion(name, 1, self._each([message] if message.seq > after else []))

    async def at(self, session_key: str, turn: int) -> SeenContext:
        """What the model was given at a turn.

        Raises:
            NotFound: when there is no such session, or no such turn in it.
        """
        row = await self._sight.session(session_key)
        budget = await self._budget(session_key, row.agent)
        room = _EVERYTHING if budget is None else budget
        saw = await self._store.context_views.saw(session_key, turn, room)
        if saw is None:
            raise NotFound(
                f"{session_key} has no turn {turn}; its newest is {row.turn}.",
                f"`perdure events {session_key}` lists them.",
            )
        context = assemble_view(saw.view, room, fresh_tail=self._settings.context.fresh_tail)
        made = {summary.id for summary in saw.view.summaries}
        return SeenContext(
            session_key=session_key,
            turn=turn,
            epoch=saw.epoch,
            tokens=sum(message.tokens for message in context.messages),
            budget=budget,
            cut=context.cut,
            messages=tuple(self._seen(message, made) for message in context.messages),
        )

    def _node(
        self,
        summary: Summary,
        known: Mapping[str, Summary],
        children: Mapping[str, Sequence[str]],
    ) -> ContextNode:
        shown = can_flow(summary.label, self._level)
        text = " ".join(summary.text.split()) if shown else ABOVE.format(summary.label)
        return ContextNode(
            **summary.model_dump(
                include=set(ContextNode.model_fields) - {"kind", "excerpt", "children"}
            ),
            excerpt=text[:EXCERPT],
            children=tuple(
                self._node(known[child], known, children)
                for child in children.get(summary.id, ())
                if child in known
            ),
        )

    async def _below(self, summary: Summary, after: int) -> AsyncIterator[HistoryMessage]:
        first = max(summary.first_seq, after + 1)
        pages = self._store.nodes.messages(
            summary.session_key, summary.epoch, first, summary.last_seq
        )
        async for page in pages:
            for message in page:
                yield readable_message(_told(message), self._level)

    async def _each(self, messages: Sequence[HistoryMessage]) -> AsyncIterator[HistoryMessage]:
        for message in messages:
            yield readable_message(message, self._level)

    def _seen(self, message: Message, summaries: set[str]) -> SeenMessage:
        kind: Literal["message", "summary", "preface"] = "message"
        if message.id in summaries:
            kind = "summary"
        elif message.seq == 0 and message.text == PREFACE:
            kind = "preface"
        return SeenMessage(
            **readable_message(_told(message), self._level).model_dump(),
            kind=kind,
            tool_call_id=message.tool_call_id,
            tool_name=message.tool_name,
            tokens=message.tokens,
        )

    async def _budget(self, session_key: str, agent: str) -> int | None:
        """What a history may take beside the instructions and tools of its agent; what is pinned,
        which changes from step to step, is not counted."""
        if agent not in self._settings.agents:
            return None
        member = await self._roster.of(session_key, agent)
        told = [f"{spec.description}{spec.schema()}" for spec in member.toolbox.specs.values()]
        reserved = sum(map(estimate_tokens, [member.agent.instructions, *told]))
        return history_budget(member.agent.context_window, reserved)


#: Room for any history, where nobody says how much there is.
_EVERYTHING = 1_000_000_000


def _no_node(session_key: str, name: str) -> NotFound:
    return NotFound(
        f"There is no summary or message {name[:80]!r} in {session_key}.",
        f"`perdure context {session_key}` shows the summaries.",
    )


def _told(message: Message) -> HistoryMessage:
    fields = set(HistoryMessage.model_fields)
    return HistoryMessage.model_validate(message.model_dump(include=fields))
