"""A list of models, tried in order.

Invariant: within one call each model is tried once, and the next at once; waiting is left to
whoever retries the whole call.
"""

from __future__ import annotations

from collections.abc import Sequence

from perdure.models.failure import ModelFailure, failure_of_all
from perdure.models.prompt import Answer, OnText, Piece, Prompt
from perdure.models.resolution import resolve
from perdure.telemetry.model_calls import model_call


class ModelChain:
    """The models of an agent: the first, and those to fall back on. Names are checked on use."""

    def __init__(self, names: Sequence[str]) -> None:
        if not names:
            raise ValueError("a model chain needs at least one model name")
        self.names = tuple(names)

    async def answer(self, prompt: Prompt, on_text: OnText) -> Answer:
        """The answer of the first model that gives one.

        Text comes to `on_text` as it is streamed. When a model fails after it has spoken, a piece
        with `restart` says that all text so far is void. What `on_text` itself raises ends the
        call and is passed on as it is.

        Raises:
            ModelFailure: when all failed: retryable if any of them was, naming every model tried.
        """
        failures: list[ModelFailure] = []
        for name in self.names:
            relay = _Relay(on_text)
            try:
                with model_call(name) as call:
                    model = await resolve(name)
                    answer = await model.answer(prompt, relay.pass_on)
                    call.answered(answer.usage, answer.finish_reason)
                return answer
            except ModelFailure as failure:
                failures.append(failure)
                if relay.spoke:
                    await on_text(Piece("", restart=True))
        if len(failures) == 1:
            raise failures[0]
        raise failure_of_all(failures) from failures[-1]


class _Relay:
    """Passes text on and remembers that there was some."""

    def __init__(self, on_text: OnText) -> None:
        self._on_text = on_text
        self.spoke = False

    async def pass_on(self, piece: Piece) -> None:
        self.spoke = True
        await self._on_text(piece)
