"""Examples of what is sent and answered in OpenAI's protocols; see `gateway.http.examples`."""

from __future__ import annotations

from pydantic import BaseModel

from gateway.http.openai.answers import (
    Completion,
    CompletionChoice,
    CompletionMessage,
    CompletionUsage,
    Finish,
)
from gateway.http.openai.chat import Model, ModelList
from gateway.http.openai.outputs import OutputMessage, OutputText, ResponseBody, ResponseUsage
from gateway.http.openai.refusals import ErrorBody, ErrorDetail
from gateway.http.openai.requests import ChatMessage, ChatRequest, ResponseRequest
from gateway.http.openai.sessions import response_id

_ID = "order-4711"
_AT = 1_767_268_800

EXAMPLES: dict[str, BaseModel] = {
    "ChatRequest": ChatRequest(
        model="main", user="bob", messages=[ChatMessage(role="user", content="What is new?")]
    ),
    "Completion": Completion(
        id=f"chatcmpl-{_ID}",
        created=_AT,
        model="main",
        choices=(
            CompletionChoice(
                message=CompletionMessage(content="All is well."), finish_reason=Finish.STOP
            ),
        ),
        usage=CompletionUsage(prompt_tokens=210, completion_tokens=4, total_tokens=214),
    ),
    "Model": Model(id="main"),
    "ModelList": ModelList(data=(Model(id="main"),)),
    "ResponseRequest": ResponseRequest(model="main", user="bob", input="What is new?"),
    "ResponseBody": ResponseBody(
        id=response_id("default:bob", _ID),
        created_at=_AT,
        completed_at=_AT,
        status="completed",
        model="main",
        output=(
            OutputMessage(
                id=f"msg_{_ID}_0",
                status="completed",
                content=(OutputText(text="All is well."),),
                phase="final_answer",
            ),
        ),
        usage=ResponseUsage(input_tokens=210, output_tokens=4, total_tokens=214),
    ),
    "ErrorBody": ErrorBody(
        error=ErrorDetail(
            message="There is no agent 'gpt-5'. The models here are: main.",
            type="invalid_request_error",
            param="model",
            code="model_not_found",
        )
    ),
}
