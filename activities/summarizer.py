"""Summaries of a whole conversation, or of a topic in it, for a handoff or an overview.

Invariant: nothing is published by them: they are answers, not part of the context. Their label is
the highest of what they tell of, and one takes no more model calls than a sweep.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import datetime

from pydantic import Field

from activities.roster import Roster
from activities.summary_writer import Caller, SummaryWriter
from perdure.config import Settings
from perdure.context import Summary, View, estimate_tokens, summary_id
from perdure.context.excerpts import excerpt
from perdure.context.planning import Pass
from perdure.context.sources import plain_text
from perdure.domain.errors import NotFound
from perdure.domain.labels import Label, join
from perdure.domain.messages import Frozen, Message
from perdure.guard import Guard
from perdure.search import parse
from perdure.store import Store
from perdure.store.context_search import Kind

#: The length of a summary that `summarize` makes, in tokens.
OVERVIEW_TOKENS = 2_000
#: The length of what a child is told of its parent's conversation, in tokens.
HANDOFF_TOKENS = 1_000
#: Messages on a topic that are read.
_ON_TOPIC = 30
#: Seconds for all calls of one summary; the tool's own timeout is a little longer.
_SECONDS = 240.0
#: Models miss lengths: they are asked for less than may be.
_ASKED_SHARE = 0.8
#: How much longer than its summary a source is taken to be: a handoff is no part of a context, and
#: need not be shorter than what it tells of.
_SOURCE_FACTOR = 4
_CUT = "[…]"

#: A stretch of a conversation: messages, or the summary that stands for them.
Stretch = Summary | list[Message]


class Covers(Frozen):
    """What a summary tells of."""

    begin: datetime = Field(serialization_alias="from")
    end: datetime = Field(serialization_alias="to")
    messages: int


class Overview(Frozen):
    """The result of `summarize`. `fallback` tells that no model wrote it."""

    summary: str
    label: Label
    covers: Covers
    fallback: bool


class Summarizer:
    """Summarises conversations on request."""

    def __init__(self, settings: Settings, store: Store, roster: Roster, guard: Guard) -> None:
        self._settings = settings
        self._store = store
        self._roster = roster
        self._guard = guard

    async def summary_of(
        self,
        session_key: str,
        agent: str,
        label: Label,
        *,
        turn: int = 0,
        max_tokens: int = HANDOFF_TOKENS,
    ) -> tuple[str, Label]:
        """What a session's conversation has come to, in at most `max_tokens`, and its level.

        Raises:
            NotFound: when nothing was said.
        """
        caller = Caller(session_key=session_key, agent=agent, turn=turn, label=label)
        overview = await self.session(caller, max_tokens)
        return overview.summary, overview.label

    async def session(self, caller: Caller, max_tokens: int = OVERVIEW_TOKENS) -> Overview:
        """The whole conversation: its summaries, and what none of them covers.

        Raises:
            NotFound: when nothing was said.
        """
        settings = self._settings.context
        most = settings.sweep_passes * settings.leaf_chunk_tokens
        view = await self._store.tails.look(caller.session_key, most)
        stretches = [] if view is None else list(_stretches(view, settings.leaf_chunk_tokens))
        if not stretches:
            raise NotFound("Nothing was said in this conversation yet.")
        return await self._told(caller, stretches, max_tokens)

    async def topic(
        self, caller: Caller, topic: str, max_tokens: int = OVERVIEW_TOKENS
    ) -> Overview:
        """What was said on a topic.

        Raises:
            NotFound: when nothing was.
        """
        messages = await self._on_topic(caller, topic)
        if not messages:
            raise NotFound(
                f"Nothing was said on {topic[:80]!r}.", "Use words that stand in the conversation."
            )
        return await self._told(caller, [messages], max_tokens, about=topic)

    async def _told(
        self, caller: Caller, stretches: Sequence[Stretch], max_tokens: int, about: str = ""
    ) -> Overview:
        member = await self._roster.of(caller.session_key, caller.agent)
        writer = SummaryWriter(
            self._store,
            self._guard,
            self._settings.context,
            caller,
            self._settings.context.models(member.agent.models),
            await self._store.sweeps.state(caller.session_key),
        )
        until = asyncio.get_running_loop().time() + _SECONDS
        target = int(max_tokens * _ASKED_SHARE)
        if len(stretches) == 1 and isinstance(stretches[0], list):
            told = await self._written(writer, caller, stretches[0], target, until, about)
        else:
            length = self._settings.context.leaf_target_max
            parts = [
                stretch
                if isinstance(stretch, Summary)
                else await self._written(writer, caller, stretch, length, until, about)
                for stretch in stretches
            ]
            told = await self._written(writer, caller, parts, target, until, about)
        text = told.text
        if estimate_tokens(text) > max_tokens:
            text = excerpt(text, max_tokens, _CUT) or ""
        covers = Covers(begin=told.earliest_at, end=told.latest_at, messages=told.messages)
        return Overview(summary=text, label=told.label, covers=covers, fallback=told.fallback)

    async def _written(
        self,
        writer: SummaryWriter,
        caller: Caller,
        source: Sequence[Message] | Sequence[Summary],
        target: int,
        until: float,
        about: str,
    ) -> Summary:
        """A summary of `source` that nobody will publish."""
        made = _asked(caller, source, target)
        parameters = self._settings.context.model_copy(update={"fallback_tokens": target})
        seconds = until - asyncio.get_running_loop().time()
        text = await writer.write(made, source, parameters, seconds=seconds, about=about)
        await self._store.sweeps.spend(caller.session_key, text.usage)
        plain = excerpt(plain_text(source), target, _CUT) or ""
        return Summary(
            **made.model_dump(include={"id", "depth", "first_seq", "last_seq", "messages"}),
            session_key=caller.session_key,
            epoch=0,
            text=plain if text.text is None else text.text,
            tokens=text.tokens,
            source_tokens=made.source_tokens,
            label=join(*(one.label for one in source)),
            earliest_at=min(_begin(one) for one in source),
            latest_at=max(_end(one) for one in source),
            fallback=text.model is None,
            from_turn=caller.turn,
        )

    async def _on_topic(self, caller: Caller, topic: str) -> list[Message]:
        """The messages that a search for the topic finds, best first as far as one prompt reaches,
        then in the order they were said."""
        key = caller.session_key
        epoch = await self._store.nodes.epoch(key)
        if epoch is None:
            return []
        found: list[Message] = []
        # All words of the topic together, or else any of them.
        for query in (topic, " OR ".join(topic.split())):
            hits = await self._store.context_search.find(
                key,
                epoch,
                parse(query),
                caller.label,
                kinds=frozenset({Kind.MESSAGE}),
                before_turn=caller.turn,
                limit=_ON_TOPIC,
            )
            messages = [await self._store.nodes.message(key, epoch, hit.id) for hit in hits.hits]
            found = [one for one in messages if one is not None]
            if found:
                break
        room = self._settings.context.leaf_chunk_tokens
        kept: list[Message] = []
        for message in found:
            room -= message.tokens
            if kept and room < 0:
                break
            kept.append(message)
        return sorted(kept, key=lambda message: message.seq)


def _stretches(view: View, chunk: int) -> Iterator[Stretch]:
    """A conversation in order: its summaries, and what is raw in pieces of about `chunk` tokens."""
    waiting = list(view.summaries)
    piece: list[Message] = []
    tokens = 0
    for message in view.groups.messages(0):
        while waiting and waiting[0].first_seq < message.seq:
            if piece:
                yield piece
            piece, tokens = [], 0
            yield waiting.pop(0)
        if piece and tokens + message.tokens > chunk:
            yield piece
            piece, tokens = [], 0
        piece.append(message)
        tokens += message.tokens
    if piece:
        yield piece
    yield from waiting


def _asked(caller: Caller, source: Sequence[Message] | Sequence[Summary], target: int) -> Pass:
    depth = max(one.depth + 1 if isinstance(one, Summary) else 0 for one in source)
    ids = tuple(one.id for one in source)
    tokens = sum(one.tokens for one in source)
    return Pass(
        id=summary_id(caller.session_key, 0, depth, ids),
        depth=depth,
        sources=ids,
        first_seq=min(o.first_seq if isinstance(o, Summary) else o.seq for o in source),
        last_seq=max(o.last_seq if isinstance(o, Summary) else o.seq for o in source),
        messages=sum(o.messages if isinstance(o, Summary) else 1 for o in source),
        source_tokens=max(tokens, _SOURCE_FACTOR * target, 1_000),
        target=target,
    )


def _begin(one: Message | Summary) -> datetime:
    return one.earliest_at if isinstance(one, Summary) else one.at


def _end(one: Message | Summary) -> datetime:
    return one.latest_at if isinstance(one, Summary) else one.at
