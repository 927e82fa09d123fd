"""A real model, reached through pydantic-ai.

Invariant: one attempt and one stream per call. The provider SDK's own retries are off, since the
durable layer above retries, and a cancelled call closes its HTTP stream before it returns.
"""

from __future__ import annotations

from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import (
    InstructionPart,
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
)
from pydantic_ai.models import Model as ProviderClient
from pydantic_ai.models import infer_model
from pydantic_ai.settings import ModelSettings

from perdure.models.conversion import to_answer, to_history, to_parameters, without_surrogates
from perdure.models.failure import FailureKind, failure_of
from perdure.models.openai_sdk import spare_messages_the_walk
from perdure.models.prompt import Answer, OnText, Piece, Prompt
from perdure.models.sorting import broken_stream, sort_call_error, sort_setup_error


class ProviderModel:
    """The model of any pydantic-ai name. Building one imports an SDK: up to a second, blocking.

    Raises:
        ModelFailure: not retryable, for an unknown name, a missing key or a missing package.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        try:
            self._client: ProviderClient = infer_model(name)
        except Exception as error:
            raise sort_setup_error(name, error) from error
        spare_messages_the_walk()

    async def open(self) -> None:
        """Bind the model's HTTP client to the running event loop."""
        await self._client.__aenter__()

    async def close(self) -> None:
        """Close the HTTP client."""
        await self._client.__aexit__(None, None, None)

    async def answer(self, prompt: Prompt, on_text: OnText) -> Answer:
        """Stream the answer; see `Model.answer`."""
        listener = _Listener(on_text)
        try:
            response = await self._stream(prompt, listener)
        except Exception as error:
            if error is listener.error:
                raise
            raise sort_call_error(self.name, error, self._client.base_url or "") from error
        if not _is_complete(response):
            raise broken_stream(self.name)
        answer = to_answer(self.name, response)
        if answer.finish_reason == "error" and not (answer.text or answer.tool_calls):
            raise failure_of(
                self.name,
                FailureKind.BAD_RESPONSE,
                "the model stopped with an error, without a word",
            )
        if answer.text and not listener.spoke:
            # A refusal is not streamed as text, but it is what the model said.
            await on_text(Piece(answer.text))
        return answer

    async def _stream(self, prompt: Prompt, listener: _Listener) -> ModelResponse:
        parameters = to_parameters(prompt.tools)
        if prompt.instructions:
            parameters.instruction_parts = [InstructionPart(prompt.instructions)]
        # `direct` leaves out this step, which fits a history to the model: ids, foreign parts.
        history = to_history(prompt.transcript, prompt.parent)
        messages = self._client.prepare_messages(history, parameters)
        settings = ModelSettings(
            max_retries=0,
            # Per phase of the request; pydantic-ai caps connecting at 5 s by itself.
            timeout=prompt.silence,
            # Each step sends the whole conversation again; caching pays from the second on.
            cache=True,
        )
        async with model_request_stream(
            self._client, messages, model_settings=settings, model_request_parameters=parameters
        ) as stream:
            async for event in stream:
                await listener.hear(event)
            return stream.get()


class _Listener:
    """Takes text out of stream events; tells the receiver's own errors from the model's."""

    def __init__(self, on_text: OnText) -> None:
        self._on_text = on_text
        self.spoke = False
        self.error: Exception | None = None
        self._half = ""

    async def hear(self, event: ModelResponseStreamEvent) -> None:
        text = ""
        if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
            text = event.part.content
            if text and self.spoke and event.previous_part_kind != "text":
                # As `ModelResponse.text` joins texts that something else stands between.
                text = f"\n\n{text}"
        elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
            text = event.delta.content_delta
        text, self._half = self._half + text, ""
        if "\ud800" <= text[-1:] <= "\udbff":
            # The first half of a character; the other is in the next piece.
            text, self._half = text[:-1], text[-1]
        if not text:
            return
        self.spoke = True
        try:
            await self._on_text(Piece(without_surrogates(text)))
        except Exception as error:
            self.error = error
            raise


def _is_complete(response: ModelResponse) -> bool:
    """Whether the provider itself ended the answer.

    A connection that closes in order in the middle of a stream is no error to the HTTP client, and
    for Chat Completions pydantic-ai then says `stop` itself. What is missing is the provider's own
    finish reason, and the usage that comes with it.
    """
    if response.state != "complete":
        return False
    if (response.provider_details or {}).get("finish_reason"):
        return True
    if response.finish_reason == "stop":
        return response.usage.has_values()
    return response.finish_reason is not None
