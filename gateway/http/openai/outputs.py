"""A turn as OpenAI's responses tell it: objects, and the events of a stream.

Invariant: the last event of a stream holds the whole response; what was said before the answer, or
was begun and given up, is an item of its own there, marked as commentary or incomplete.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from gateway.http.openai.answers import Finish, finish_of
from gateway.http.openai.refusals import TurnFailed
from perdure.domain.errors import Code
from perdure.domain.messages import Frozen
from perdure.domain.states import TurnState
from perdure.store.transcript import TurnResult

Status = Literal["in_progress", "completed", "incomplete", "failed"]
_REASONS = {Finish.LENGTH: "max_output_tokens", Finish.CONTENT_FILTER: "content_filter"}
#: OpenAI's codes for what a turn fails of; the rest is a fault of the server.
_CODES = {
    Code.RATE_LIMITED: "rate_limit_exceeded",
    Code.LIMIT_EXCEEDED: "rate_limit_exceeded",
    Code.INVALID_ARGUMENT: "invalid_prompt",
}


class OutputText(Frozen):
    """Text of an item."""

    type: Literal["output_text"] = "output_text"
    text: str
    annotations: tuple[()] = ()
    logprobs: tuple[()] = ()


class OutputMessage(Frozen):
    """What the agent said in one step."""

    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    status: Literal["in_progress", "completed", "incomplete"]
    content: tuple[OutputText, ...] = ()
    phase: Literal["commentary", "final_answer"] | None = None


class _Cached(Frozen):
    cached_tokens: int = 0
    cache_write_tokens: int = 0


class _Reasoned(Frozen):
    reasoning_tokens: int = 0


class ResponseUsage(Frozen):
    """The tokens of all model calls of a turn."""

    input_tokens: int
    input_tokens_details: _Cached = _Cached()
    output_tokens: int
    output_tokens_details: _Reasoned = _Reasoned()
    total_tokens: int


class ResponseFault(Frozen):
    """Why a turn came to no answer."""

    code: str
    message: str


class Incomplete(Frozen):
    """Why an answer is not whole."""

    reason: Literal["max_output_tokens", "content_filter"]


class _Format(Frozen):
    type: Literal["text"] = "text"


class PlainText(Frozen):
    """The one form of an answer."""

    format: _Format = _Format()


class ResponseBody(Frozen):
    """A response: one turn of an agent. Its id names the session and the message."""

    id: str = Field(examples=["resp_ZGVmYXVsdDpib2IKbXNnXzAx"])
    object: Literal["response"] = "response"
    created_at: int
    completed_at: int | None = None
    status: Status
    model: str
    output: tuple[OutputMessage, ...] = ()
    usage: ResponseUsage | None = None
    error: ResponseFault | None = None
    incomplete_details: Incomplete | None = None
    previous_response_id: str | None = None
    instructions: str | None = None
    metadata: dict[str, str] = Field(default_factory=dict)
    user: str | None = None
    store: bool = True
    background: bool = False
    parallel_tool_calls: bool = True
    tool_choice: Literal["auto"] = "auto"
    tools: tuple[()] = ()
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    truncation: Literal["disabled"] = "disabled"
    text: PlainText = PlainText()
    reasoning: JsonValue = None

    def ended(self, result: TurnResult, said: tuple[OutputMessage, ...] = ()) -> ResponseBody:
        """This response at the end of its turn. `said` is what was streamed of it, if it was."""
        status, error, incomplete = _ending(result)
        output = said
        if not said and error is None and result.text:
            part = OutputText(text=result.text)
            whole: Literal["completed", "incomplete"]
            whole = "completed" if incomplete is None else "incomplete"
            output = (
                OutputMessage(
                    id=item_id(result.message_id, 0),
                    status=whole,
                    content=(part,),
                    phase="final_answer",
                ),
            )
        used = result.usage
        return self.model_copy(
            update={
                "status": status,
                "output": output,
                "error": error,
                "incomplete_details": incomplete,
                "completed_at": self.created_at if status == "completed" else None,
                "usage": ResponseUsage(
                    input_tokens=used.input_tokens,
                    output_tokens=used.output_tokens,
                    total_tokens=used.input_tokens + used.output_tokens,
                ),
            }
        )


def item_id(message_id: str, place: int) -> str:
    """The id of the `place`-th thing said in the turn of a message."""
    return f"msg_{message_id}_{place}"


def _ending(result: TurnResult) -> tuple[Status, ResponseFault | None, Incomplete | None]:
    if result.state is TurnState.RUNNING:
        return "in_progress", None, None
    try:
        finish = finish_of(result)
    except TurnFailed as failed:
        code = _CODES.get(failed.code, "server_error")
        return "failed", ResponseFault(code=code, message=str(failed)), None
    reason = _REASONS.get(finish)
    if reason is None:
        return "completed", None, None
    return "incomplete", None, Incomplete.model_validate({"reason": reason})


class ResponseEvent(Frozen):
    """An event of a stream; which of the fields it has, its type says."""

    type: str
    sequence_number: int
    response: ResponseBody | None = None
    item: OutputMessage | None = None
    part: OutputText | None = None
    item_id: str | None = None
    output_index: int | None = None
    content_index: int | None = None
    delta: str | None = None
    text: str | None = None
    logprobs: tuple[()] | None = None
    code: str | None = None
    message: str | None = None
    param: str | None = None
