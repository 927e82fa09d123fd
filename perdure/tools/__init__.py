"""The tool catalogue: names, parameter models, groups and traits.

Invariant: this room decides what a tool is and never touches what it works on, so workflows may
import it. Implementations are bound to names by the activities.
"""

from perdure.tools.catalogue import BUILTIN, Toolbox, groups, select
from perdure.tools.output import to_json_text
from perdure.tools.signature import ToolContext
from perdure.tools.spec import Effect, ToolSpec
from perdure.tools.user import UserTool, discover, from_function, load, tool

__all__ = [
    "BUILTIN",
    "Effect",
    "ToolContext",
    "ToolSpec",
    "Toolbox",
    "UserTool",
    "discover",
    "from_function",
    "groups",
    "load",
    "select",
    "to_json_text",
    "tool",
]
