"""What the model sees of a conversation: pure functions from messages to messages.

Invariant: nothing here touches a database, a clock or a network.
"""

from perdure.context.assembly import Context, View, assemble, assemble_view, history_budget
from perdure.context.calibration import Calibration
from perdure.context.groups import Groups
from perdure.context.summaries import ContextParameters, Summary, summary_id
from perdure.context.tokens import estimate_tokens, message_tokens

__all__ = [
    "Calibration",
    "Context",
    "ContextParameters",
    "Groups",
    "Summary",
    "View",
    "assemble",
    "assemble_view",
    "estimate_tokens",
    "history_budget",
    "message_tokens",
    "summary_id",
]
