"""What the gateway's guards refuse, as JSON-RPC tells it: the only form that MCP clients read.

Invariant: the reason and what to do about it reach the person at the client.
"""

from __future__ import annotations

from typing import Literal

from gateway.http.problems import Problem
from perdure.domain.messages import Frozen

#: JSON-RPC's own code for a request that is not taken.
INVALID_REQUEST = -32600


class ErrorOf(Frozen):
    """An error of JSON-RPC; `data` is the problem detail."""

    code: int = INVALID_REQUEST
    message: str
    data: Problem


class ErrorResponse(Frozen):
    """The answer to a request that was refused before it was read."""

    jsonrpc: Literal["2.0"] = "2.0"
    id: None = None
    error: ErrorOf


def of_problem(problem: Problem) -> ErrorResponse:
    """A problem as the answer to a JSON-RPC request."""
    said = f"{problem.code}: {problem.detail} {problem.hint}".strip()
    return ErrorResponse(error=ErrorOf(message=said, data=problem))
