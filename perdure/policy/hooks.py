"""The places where policy is asked, and what it may answer. Closed sets."""

from __future__ import annotations

from enum import StrEnum


class Hook(StrEnum):
    """A place in a session's life at which rules are evaluated."""

    #: Something is about to enter the model's context.
    PRE_CONTEXT_INJECTION = "PRE_CONTEXT_INJECTION"
    #: A tool is about to run.
    PRE_TOOL_CALL = "PRE_TOOL_CALL"
    #: A tool has answered, and the model has not read it yet.
    POST_TOOL_RESPONSE = "POST_TOOL_RESPONSE"
    #: Text is about to leave the session.
    PRE_OUTPUT = "PRE_OUTPUT"
    #: A stored credential is about to be used.
    SECRET_ACCESS = "SECRET_ACCESS"
    #: A session is about to begin anew.
    SESSION_RESET = "SESSION_RESET"
    #: An agent is about to be given work: a turn, or a sub-agent's task.
    AGENT_INVOCATION = "AGENT_INVOCATION"
    #: A tool of an MCP server is about to run.
    MCP_TOOL_CALL = "MCP_TOOL_CALL"


class Action(StrEnum):
    """What a decision says is to be done."""

    ALLOW = "ALLOW"
    BLOCK = "BLOCK"
    REDACT = "REDACT"
    REQUIRE_APPROVAL = "REQUIRE_APPROVAL"
