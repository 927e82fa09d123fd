"""The ways out: channels by name, what may flow to whom, and delivery that knows what it did.

Invariant: text leaves only through `perdure.channels.courier`, which checks the label and writes
the ledger first. Importing this package loads only settings and rules, none of the carriers.
"""

from perdure.channels.settings import (
    ChannelName,
    ChannelSettings,
    RecipientSettings,
    effective_level,
)

__all__ = ["ChannelName", "ChannelSettings", "RecipientSettings", "effective_level"]
