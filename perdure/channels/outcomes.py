"""What became of one attempt to deliver: a receipt, or one of three failures.

Invariant: a failure says how certain it is, and its words are ours: no URL, no secret, and
nothing that the other side wrote, since a model reads them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from perdure.domain.errors import Code, PerdureError
from perdure.domain.messages import Frozen


class Parcel(Frozen):
    """One message on its way out. `address` is where the channel finds its recipient."""

    delivery_id: str
    channel: str
    address: str
    text: str


class Receipt(Frozen):
    """The message left. `confirmed`: the receiver itself has it, not only a carrier."""

    confirmed: bool = False


#: One attempt, bounded in time. Raises one of the failures below.
Carrier = Callable[[Parcel], Awaitable[Receipt]]


class DeliveryRefused(PerdureError):
    """Certainly not delivered, and the same message never will be."""

    code = Code.INVALID_ARGUMENT


class DeliveryFailed(PerdureError):
    """Certainly not delivered; may be tried again, after `retry_after` seconds if given."""

    code = Code.UNAVAILABLE

    def __init__(self, message: str, hint: str = "", retry_after: float | None = None) -> None:
        super().__init__(message, hint or "Nothing was delivered; it may be sent again later.")
        self.retry_after = retry_after


class DeliveryUnknown(PerdureError):
    """May have been delivered; nobody can tell from here."""

    code = Code.UNAVAILABLE
