"""What the model sees of a conversation: pure functions from messages to messages.

Invariant: nothing here touches a database, a clock or a network.
"""

from perdure.context.assembly import Context, assemble
from perdure.context.tokens import estimate_tokens, message_tokens

__all__ = ["Context", "assemble", "estimate_tokens", "message_tokens"]
