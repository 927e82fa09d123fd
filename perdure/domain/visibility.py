"""The names under which a session is found in Temporal's visibility store.

Invariant: the server registers these, workflows set these, and nobody spells them twice.
"""

from __future__ import annotations

#: The agent that answers in the session.
AGENT = "PerdureAgent"
#: `dm`, `group` or `sub-agent`.
KIND = "PerdureKind"
#: What the session is doing.
STATE = "PerdureState"
#: The key of the session that spawned it.
PARENT = "PerdureParent"

#: All of them, each of Temporal's type Keyword.
SEARCH_ATTRIBUTES = (AGENT, KIND, STATE, PARENT)
