"""The OpenAI SDK's requests, without the walk that it takes through each of them.

Invariant: what is sent stays the same. Before it sends a request, the SDK compares all of it, key
by key, with its types, to rename keys and to encode files. Messages have neither; there it only
costs time, a quarter of a millisecond each, on the event loop and in every step: 0.4 s for 1,600
of them. Anthropic's SDK had the same (anthropic-sdk-python, issue 1195) until its version 2.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any

_Walk = Callable[[Any, Any], Awaitable[Any]]

#: What holds the conversation: in chat completions, and in responses.
_MESSAGES = ("messages", "input")
#: The SDK's function, by the name under which its modules import it.
_NAME = "async_maybe_transform"


def spare_messages_the_walk() -> None:
    """Have the SDK send messages as they are; the rest of a request it walks as before. Does
    nothing where the SDK is not used, or has no such function any more."""
    if "openai" not in sys.modules:
        return
    from openai.resources.chat.completions import completions
    from openai.resources.responses import responses

    modules: tuple[ModuleType, ...] = (completions, responses)
    for module in modules:
        walk = getattr(module, _NAME, None)
        if walk is not None and not hasattr(walk, "spares"):
            setattr(module, _NAME, _sparing(walk))


def _sparing(walk: _Walk) -> _Walk:
    async def shallow(data: Any, expected_type: Any) -> Any:
        if not isinstance(data, dict):
            return await walk(data, expected_type)
        kept = {name: data[name] for name in _MESSAGES if isinstance(data.get(name), list)}
        walked = await walk({**data, **dict.fromkeys(kept, ())}, expected_type)
        return {**walked, **kept}

    shallow.spares = _MESSAGES  # type: ignore[attr-defined]
    return shallow
