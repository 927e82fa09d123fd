"""The one way out of Perdure: checked, recorded, delivered, recorded.

Invariant: nothing leaves unless its label may flow to channel and recipient and the ledger holds
the intent. A message that may have left is never sent again silently: on an at-most-once channel
not at all, on an at-least-once channel under the same delivery id.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import traceback
from collections.abc import Mapping
from pathlib import Path

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_attempt,
    stop_before_delay,
    wait_exponential_jitter,
)

from perdure.channels.carriers import carrier_of
from perdure.channels.outcomes import (
    Carrier,
    DeliveryFailed,
    DeliveryRefused,
    DeliveryUnknown,
    Parcel,
    Receipt,
)
from perdure.channels.settings import ChannelSettings, Guarantee, effective_level
from perdure.channels.urls import Mail, check_address
from perdure.domain.errors import InvalidArgument
from perdure.domain.labels import Label, can_flow
from perdure.domain.messages import Frozen
from perdure.domain.states import DeliveryState
from perdure.store import Store
from perdure.store.deliveries import Dispatch, Entry
from perdure.telemetry.metrics import DELIVERIES

#: Tries of one delivery. A receiver that restarts is back within a few of them.
ATTEMPTS = 4
#: No try begins later than this, in seconds: a model waits for the answer.
PATIENCE = 45.0
#: The longest single try, in seconds.
ATTEMPT_SECONDS = 30.0

_logger = logging.getLogger(__name__)
_backoff = wait_exponential_jitter(initial=0.5, max=8, jitter=0.5)


class Delivery(Frozen):
    """What became of a message, as its sender may know it: `sent`, `withheld` or `unknown`."""

    status: DeliveryState
    channel: str
    recipient: str
    label: Label
    delivery_id: str
    reason: str | None = None


class Courier:
    """Takes messages out through the configured channels."""

    def __init__(self, store: Store, channels: Mapping[str, ChannelSettings], home: Path) -> None:
        """Opens no connection.

        Raises:
            InvalidArgument: a channel's URL cannot be delivered to; names the channel.
        """
        self._deliveries = store.deliveries
        self._channels = dict(channels)
        self._carriers = {
            name: carrier_of(name, settings, home) for name, settings in channels.items()
        }

    async def send(
        self,
        *,
        session_key: str,
        channel: str,
        recipient: str,
        text: str,
        label: Label,
        cause: str,
        turn: int | None = None,
        step: int | None = None,
        thread: str | None = None,
    ) -> Delivery:
        """Deliver `text`, which has the label `label`, to `recipient` through `channel`; in a
        `thread` of theirs, where the channel has such.

        `cause` names what asks for it, once in the session and the same at every retry: for a
        tool call `turn/step/call`. A retry of what is settled returns what was recorded.

        Raises:
            InvalidArgument: no such channel, no such recipient there, or no text.
            DeliveryRefused: certainly not delivered, and never will be.
            DeliveryFailed: certainly not delivered; the same cause may be sent again.
            Conflict: the cause was recorded with another text, channel or recipient.
        """
        settings = self._known(channel)
        text = text.encode(errors="replace").decode()
        address = _address(settings, recipient, thread)
        if not text.strip():
            raise InvalidArgument("The message is empty.", "Give it a text.")
        level = effective_level(settings, recipient)
        dispatch = Dispatch(
            session_key=session_key,
            cause=cause,
            turn=turn,
            step=step,
            channel=channel,
            recipient=recipient,
            label=label,
            level=level,
            text_sha256=hashlib.sha256(text.encode()).hexdigest(),
            text_bytes=len(text.encode()),
        )
        if not can_flow(label, level):
            reason = (
                f"This session is {label}; through this channel, this recipient may be sent what "
                f"is {level} at most."
            )
            DELIVERIES.labels(channel, DeliveryState.WITHHELD).inc()
            return _told(dispatch, await self._deliveries.withhold(dispatch, reason))
        repeat = settings.delivery is Guarantee.AT_LEAST_ONCE
        entry = await self._deliveries.begin(dispatch, repeat=repeat)
        if entry.state is not DeliveryState.BEGUN:
            return _told(dispatch, entry)
        parcel = Parcel(delivery_id=entry.delivery_id, channel=channel, address=address, text=text)
        return await self._deliver(dispatch, entry, parcel, repeat)

    async def _deliver(
        self, dispatch: Dispatch, entry: Entry, parcel: Parcel, repeat: bool
    ) -> Delivery:
        settle = self._settle
        carrier = self._carriers[dispatch.channel]
        try:
            receipt = await deliver(carrier, parcel, repeat=repeat, doubtful=entry.doubtful)
        except DeliveryUnknown as error:
            settled = await settle(dispatch, entry, DeliveryState.UNKNOWN, error.message)
        except (DeliveryRefused, DeliveryFailed) as error:
            settled = await settle(dispatch, entry, DeliveryState.FAILED, error.message)
            if settled.state is DeliveryState.FAILED:
                raise
        except asyncio.CancelledError:
            # Committed even if a second cancellation comes: a write that was begun is finished.
            why = "It was interrupted while the message left."
            await settle(dispatch, entry, DeliveryState.UNKNOWN, why)
            raise
        else:
            state = DeliveryState.CONFIRMED if receipt.confirmed else DeliveryState.SENT
            settled = await settle(dispatch, entry, state)
        return _told(dispatch, settled)

    async def _settle(
        self, dispatch: Dispatch, entry: Entry, state: DeliveryState, reason: str | None = None
    ) -> Entry:
        settled = await self._deliveries.settle(dispatch, entry, state, reason)
        DELIVERIES.labels(dispatch.channel, settled.state).inc()
        return settled

    def _known(self, channel: str) -> ChannelSettings:
        settings = self._channels.get(channel)
        if settings is None:
            names = ", ".join(self._channels) or "none"
            raise InvalidArgument("There is no such channel.", f"Configured channels: {names}.")
        return settings


async def deliver(
    carrier: Carrier, parcel: Parcel, *, repeat: bool, doubtful: bool = False
) -> Receipt:
    """Try until the parcel is delivered or patience ends.

    What certainly was not delivered is tried again after a pause, the one the other side asks for
    if it does. What may have been is tried again only if `repeat`, and stays in doubt until an
    attempt succeeds; `doubtful` says that it is from the start.

    Raises:
        DeliveryRefused, DeliveryFailed: certainly not delivered.
        DeliveryUnknown: some attempt may have delivered it.
    """
    doubt: DeliveryUnknown | None = None
    if doubtful:
        doubt = DeliveryUnknown("An earlier attempt may have delivered it; this one did not.")

    def again(error: BaseException) -> bool:
        nonlocal doubt
        if isinstance(error, DeliveryUnknown):
            doubt = error
            return repeat
        return isinstance(error, DeliveryFailed)

    tries = AsyncRetrying(
        retry=retry_if_exception(again),
        wait=pause,
        stop=stop_after_attempt(ATTEMPTS) | stop_before_delay(PATIENCE),
        reraise=True,
    )
    try:
        return await tries(_attempt, carrier, parcel)
    except (DeliveryRefused, DeliveryFailed) as error:
        raise (doubt or error) from None


def pause(state: RetryCallState) -> float:
    """Seconds before the next try: a growing backoff, or longer if the other side asks for it."""
    error = state.outcome.exception() if state.outcome else None
    asked = error.retry_after if isinstance(error, DeliveryFailed) else None
    return max(_backoff(state), asked or 0.0)


async def _attempt(carrier: Carrier, parcel: Parcel) -> Receipt:
    try:
        async with asyncio.timeout(ATTEMPT_SECONDS):
            return await carrier(parcel)
    except (DeliveryRefused, DeliveryFailed, DeliveryUnknown):
        raise
    except TimeoutError:
        raise DeliveryUnknown(
            f"The channel did not say within {ATTEMPT_SECONDS:g} s whether it delivered."
        ) from None
    except Exception as error:
        # Its message may quote a URL; the places it came through do not.
        places = "".join(traceback.format_tb(error.__traceback__))
        _logger.error("the channel %s raised %s\n%s", parcel.channel, type(error).__name__, places)
        raise DeliveryUnknown("The channel failed in an unforeseen way.") from None


def _address(settings: ChannelSettings, recipient: str, thread: str | None) -> str:
    address = settings.address_of(recipient)
    if thread is not None and not isinstance(settings.target, Mail):
        # As apprise spells the threads of Slack and the topics of Telegram.
        address = f"{address}:{thread}"
    try:
        check_address(settings.target, address)
    except ValueError as error:
        raise InvalidArgument(f"The recipient {error}.", _recipients(settings)) from None
    return address


def _recipients(settings: ChannelSettings) -> str:
    return f"Configured recipients: {', '.join(settings.recipients) or 'none'}."


def _told(dispatch: Dispatch, entry: Entry) -> Delivery:
    confirmed = entry.state is DeliveryState.CONFIRMED
    return Delivery(
        status=DeliveryState.SENT if confirmed else entry.state,
        channel=dispatch.channel,
        recipient=dispatch.recipient,
        label=dispatch.label,
        delivery_id=entry.delivery_id,
        reason=entry.reason,
    )
