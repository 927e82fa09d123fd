"""What stands behind `sessions_send` and `end_exchange`, and the answers that sessions wait for.

Invariant: the store decides, in one transaction a step; the signals that follow say only that there
is something to see, and are sent again as long as it was not seen.
"""

from __future__ import annotations

from datetime import timedelta

from temporalio import activity
from temporalio.service import RPCError

from activities.post import Post
from activities.standing import Done, Pending
from perdure.config import Settings
from perdure.domain.errors import InvalidArgument, LimitExceeded, Unavailable
from perdure.domain.exchanges import Mode, Sent, sent_id
from perdure.domain.keys import SessionKey
from perdure.domain.labels import Label
from perdure.domain.messages import Frozen
from perdure.domain.steps import ExchangeTurn, RefusedMessage, ToolRequest, WaitsFor
from perdure.sending import refusal_entry, terms_of
from perdure.store import Store
from perdure.store.addressing import Party, Unreachable, WriteDown
from perdure.store.clock import now
from perdure.store.exchanges import Delivery, Outgoing
from perdure.store.runs import Address
from perdure.tools.messaging import SessionsSend

#: How long a message may lie unannounced before it is taken back: the server that would announce
#: it is the one that runs this, so it is rarely gone for longer than a moment.
PATIENCE = timedelta(seconds=60)
#: Seconds until a message that could not be announced is announced again.
RETRY = 1.0


class Ending(Frozen):
    """The result of `end_exchange`."""

    ending: bool = True


class Messaging:
    """`ExchangeActivities`, and the tools of the senders."""

    def __init__(self, settings: Settings, store: Store, post: Post) -> None:
        self._settings = settings
        self._store = store
        self._post = post
        self._terms = terms_of(settings)

    # For the sender --------------------------------------------------------------------------

    async def send(self, request: ToolRequest, asked: SessionsSend) -> Pending | Done:
        """Send, once, and wait if that is asked for.

        Raises:
            PerdureError: what the model is to read; nothing was sent.
        """
        outgoing = self._outgoing(asked)
        try:
            if asked.mode is Mode.FIRE_AND_FORGET:
                return await self._let_go(request, outgoing)
            return await self._wait(request, outgoing)
        except (Unreachable, WriteDown) as error:
            entry = refusal_entry(
                error,
                request.session_key,
                outgoing.target,
                request.label,
                outgoing.mode,
                turn=request.turn,
                step=request.step,
            )
            await self._store.record(entry)
            raise

    async def end_exchange(self, request: ToolRequest) -> Done:
        """Let the answer of this turn be the last of its exchange.

        Raises:
            Conflict: when the turn belongs to none.
        """
        await self._store.exchanges.finish(request)
        return Done(Ending())

    async def _let_go(self, request: ToolRequest, outgoing: Outgoing) -> Pending | Done:
        delivery = await self._store.exchanges.send(request, outgoing, self._terms)
        sent = Done(Sent(message_id=sent_id(request)))
        if delivery is None or await self._announced(delivery):
            return sent
        if now() < delivery.since + PATIENCE:
            return Pending(RETRY, WaitsFor.REPLY)
        if not await self._store.exchanges.take_back(
            outgoing.target, delivery.envelope.message_id, "unannounced"
        ):
            return sent
        raise Unavailable(
            f"{outgoing.target} could not be told of the message, which was taken back.",
            "Send it again later.",
        )

    async def _wait(self, request: ToolRequest, outgoing: Outgoing) -> Pending | Done:
        progress = await self._store.exchanges.open(request, outgoing, self._terms)
        if progress.result is not None:
            return Done(progress.result, label=progress.label)
        seconds = (progress.until - now()).total_seconds()
        if progress.deliver is not None and not await self._announced(progress.deliver):
            seconds = min(seconds, RETRY)
        return Pending(max(seconds, 0.0), WaitsFor.REPLY, aside=progress.aside)

    async def _announced(self, delivery: Delivery) -> bool:
        to = delivery.to
        try:
            await self._post.deliver(to.session_key, to.agent, delivery.envelope)
        except RPCError as error:
            activity.logger.warning("%s was not told of a message", to.session_key, exc_info=error)
            return False
        return True

    def _outgoing(self, asked: SessionsSend) -> Outgoing:
        key = str(SessionKey.parse(asked.session_key))
        if not asked.text.strip():
            raise InvalidArgument("The message is empty.", "Send some text.")
        size, limit = len(asked.text.encode()), self._settings.limits.message_bytes
        if size > limit:
            raise LimitExceeded(
                f"The message has {size} bytes; limits.message_bytes is {limit}.",
                "Put the content into a file and say where it is.",
            )
        return Outgoing(
            target=key,
            text=asked.text,
            mode=asked.mode,
            seconds=asked.timeout_ms / 1000,
            max_turns=asked.max_turns,
        )

    # For the target --------------------------------------------------------------------------

    @activity.defn
    async def reply(self, turn: ExchangeTurn) -> None:
        """Record that a message has its answer, and wake the session that waits for it; or bring
        it the answer that comes late."""
        replied = await self._store.exchanges.reply(turn, self._terms)
        if replied.wake is not None:
            await self._post.wake(_address(replied.wake))
        if replied.deliver is not None:
            to = replied.deliver.to
            await self._post.deliver(to.session_key, to.agent, replied.deliver.envelope)

    @activity.defn
    async def refuse(self, refused: RefusedMessage) -> None:
        """Drop a message that may not come in, and tell the session that waits for its answer."""
        await self._store.exchanges.take_back(
            refused.session_key, refused.message_id, refused.reason
        )
        if refused.exchange is not None:
            place = refused.model_dump(include={"session_key", "message_id", "exchange"})
            await self.reply(ExchangeTurn(**place, label=Label.PUBLIC))


def _address(party: Party) -> Address:
    return Address(session_key=party.session_key, agent=party.agent)
