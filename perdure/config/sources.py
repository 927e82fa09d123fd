"""The settings of MCP servers that agents take tools from.

Invariant: a secret is never in the file: it is named, as in `${NAME}`, and taken from the
environment when the server is reached. What is not said of a server is what trusts it least.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from perdure.config.policies import LabelWord, Word
from perdure.domain.errors import Unavailable
from perdure.domain.labels import Label

_NAME = re.compile(r"(?=.{1,32}\Z)[A-Za-z][A-Za-z0-9-]*(_[A-Za-z0-9-]+)*")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
#: Names under which credentials go about.
_SECRET = re.compile(r"auth|key|token|secret|passw|credential|cookie", re.IGNORECASE)


def _server_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(
            "must be named with a letter and up to 31 letters, digits, - and single _ inside"
        )
    return name


ServerName = Annotated[str, AfterValidator(_server_name)]


def _level(value: Any) -> Any:
    try:
        return None if value is None else Label(value)
    except ValueError:
        raise ValueError(f"must be one of {', '.join(Label)}") from None


class SourceSettings(BaseModel):
    """One `[mcp.NAME]` table: a server whose tools agents may use, as `mcp:NAME`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    #: The program that speaks MCP on its standard streams, started in the home folder.
    command: Word | None = None
    args: list[str] = []
    #: Variables for the program; of this process' own it gets PATH, HOME and the like only.
    env: dict[Word, str] = {}
    #: Where a server that speaks streamable HTTP is, instead of a command.
    url: str | None = Field(None, validate_default=True)
    headers: dict[Word, str] = {}
    #: The highest label of what it may be told: a session above it cannot call its tools.
    clearance: LabelWord = Label.PUBLIC
    #: The level of what it tells; None is its clearance.
    label: Annotated[Label | None, BeforeValidator(_level)] = None
    #: Patterns of the tools that may be used, by the server's names.
    tools: list[Word] = ["*"]
    #: Patterns of the tools that may be run again because they change nothing, or nothing more.
    read_only: list[Word] = []
    idempotent: list[Word] = []
    #: Whether the server's own word on that counts.
    trust_hints: bool = False
    #: Seconds one call may take; None leaves it to `limits.tool_timeout`.
    timeout: float | None = Field(None, gt=0, allow_inf_nan=False)
    #: Seconds to reach it and to have its list of tools.
    connect_timeout: float = Field(10.0, gt=0, le=300)

    @property
    def level(self) -> Label:
        """The level of what it tells."""
        return self.clearance if self.label is None else self.label

    @property
    def secrets(self) -> bool:
        """Whether it is reached with something of the environment."""
        return any(map(_VARIABLE.search, (*self.env.values(), *self.headers.values())))

    @field_validator("url")
    @classmethod
    def _http(cls, value: str | None) -> str | None:
        if value is None:
            return value
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("must begin with http:// or https:// and name a host")
        if parts.username or parts.password:
            raise ValueError("must hold no password; send one in headers")
        return value

    @field_validator("env", "headers")
    @classmethod
    def _no_secret(cls, value: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        for name, text in value.items():
            if _SECRET.search(name) and not _VARIABLE.search(text):
                example = f'{name} = "${{MY_SECRET}}"'
                raise ValueError(f"must take {name} from the environment, as in {example}")
        return value

    @model_validator(mode="after")
    def _one_way(self) -> SourceSettings:
        if (self.command is None) == (self.url is None):
            raise ValueError("must have either a command or a url")
        if self.url is not None and (self.args or self.env):
            raise ValueError("must not have args or env beside a url: they are a command's")
        if self.command is not None and self.headers:
            raise ValueError("must not have headers beside a command: they are a url's")
        return self


def expanded(values: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """`values` with what `${NAME}` stands for.

    Raises:
        Unavailable: when the environment has no such variable.
    """

    def value_of(found: re.Match[str]) -> str:
        name = found[1]
        if not environ.get(name):
            raise Unavailable(
                f"The variable {name} is not set in the environment of this process.",
                f"Set {name} where the workers are started.",
            )
        return environ[name]

    return {name: _VARIABLE.sub(value_of, text) for name, text in values.items()}
