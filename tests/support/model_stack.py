"""A stack whose agents speak to the fake provider, with every tool a promise needs."""

from __future__ import annotations

from tests.support.openai_server import OpenAIServer

#: A model whose price is known, so that costs can be checked.
PRICED = "openai-chat:gpt-4o-mini"
#: Dollars per token of `PRICED`.
INPUT_PRICE = 0.15e-6
OUTPUT_PRICE = 0.60e-6

_USER_TOOLS = (
    *("pay", "retire", "put", "look", "late", "early", "too_slow", "too_slow_to_read"),
    *("seven_seconds", "seven_seconds_async", "huge", "odd", "raises", "raises_async"),
    *("add", "add_async", "whoami"),
)

AGENTS = f"""
[agents.main]
model = "{PRICED}"
instructions = "Be brief."
tools = ["files", {", ".join(f'"tests.support.user_tools:{name}"' for name in _USER_TOOLS)}]

[agents.chain]
model = ["openai-chat:first", "openai-chat:second"]
tools = []

[agents.small]
model = "{PRICED}"
instructions = "Be brief."
tools = ["tests.support.user_tools:add"]
context_window = 1000

[agents.hasty]
model = "{PRICED}"
tools = ["tests.support.user_tools:add"]
max_steps = 3

[agents.misspelt]
model = "openai-chatt:gpt-4o-mini"

[agents.keyless]
model = "anthropic:claude-sonnet-4-5"

[agents.patient]
model = "{PRICED}"
tools = ["tests.support.slow_tools:thing"]

[agents.broken]
model = "{PRICED}"
tools = ["tests.support.user_tools:no_such_thing"]

[limits]
step_attempts = 3

# Summaries are made without a model: the provider's script is for the turns.
[context]
daily_tokens = 0
"""


def environ(provider: OpenAIServer) -> dict[str, str]:
    """What a worker must know to reach `provider`, and no other."""
    return {
        "OPENAI_BASE_URL": provider.base_url,
        "OPENAI_API_KEY": "test-key",
        "ANTHROPIC_API_KEY": "",
    }
