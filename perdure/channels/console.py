"""The console channel: a framed message on the worker's standard output.

Invariant: a message can neither fake a frame nor drive the terminal it is read in. Every line of
it stands behind the frame's edge, and control characters are spelt out.
"""

from __future__ import annotations

import asyncio
import sys

from perdure.channels.outcomes import Carrier, DeliveryUnknown, Parcel, Receipt


def console() -> Carrier:
    """The carrier of `console:`."""

    async def deliver(parcel: Parcel) -> Receipt:
        await asyncio.to_thread(_print, framed(parcel))
        return Receipt()

    return deliver


def framed(parcel: Parcel) -> str:
    """The message as it is printed, its last line ended."""
    head = f"┌ {_spelt(parcel.channel)} → {_spelt(parcel.address)} · {parcel.delivery_id}"
    lines = [f"│ {_spelt(line)}" for line in parcel.text.split("\n")]
    return "\n".join([head, *lines, "└", ""])


def _spelt(line: str) -> str:
    return "".join(
        char if char.isprintable() or char == "\t" else ascii(char)[1:-1] for char in line
    )


def _print(text: str) -> None:
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except (OSError, ValueError) as error:
        raise DeliveryUnknown("The worker's standard output cannot be written.") from error
