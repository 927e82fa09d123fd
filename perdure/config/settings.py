"""What can be set. Every key of perdure.toml is a field here, with its default and its bounds.

Invariant: a key exists here only if some part of Perdure honours it; anything else is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationInfo,
    field_validator,
)

from perdure.audit import AuditFiles
from perdure.channels import ChannelName, ChannelSettings
from perdure.config.context import ContextSettings
from perdure.config.encryption import EncryptionSettings
from perdure.config.gateway import GatewaySettings
from perdure.config.memory import MemorySettings
from perdure.config.observability import ObservabilitySettings
from perdure.config.policies import (
    ModelSettings,
    PolicySettings,
    ToolSettings,
    Word,
    WorkspaceSettings,
)
from perdure.config.sources import ServerName, SourceSettings
from perdure.config.webhooks import WebhookSettings
from perdure.domain.errors import InvalidArgument, NotFound
from perdure.domain.keys import Marker, SessionKey
from perdure.domain.labels import Label, can_flow
from perdure.domain.limits import Limits
from perdure.domain.sources import read_reference

DEFAULT_AGENT = "main"

DEFAULT_INSTRUCTIONS = (
    "You are a careful assistant. Use your tools to look at the facts before you answer, "
    "do the work that is asked, and say plainly what you did."
)

#: The databases the store speaks.
STORE_SCHEMES = ("sqlite", "postgresql", "postgresql+asyncpg")

_AGENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+):[0-9]{1,5}")


def _agent_name(name: str) -> str:
    if not _AGENT_NAME.fullmatch(name):
        raise ValueError("must be named with 1 to 64 letters, digits, - and _")
    return name


AgentName = Annotated[str, AfterValidator(_agent_name)]


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class AgentSettings(_Table):
    """One `[agents.NAME]` table: who answers, with what, and up to which label."""

    #: A model name, or several to be tried in order.
    model: str | list[str] = "rehearsal"
    #: The system prompt.
    instructions: str = DEFAULT_INSTRUCTIONS
    #: Tool groups, single tools, or a Python function as `module:function`.
    tools: list[Word] = ["files", "sessions", "subagents", "context", "memory"]
    #: The highest label that information in its sessions may have.
    clearance: Label = Label.CONFIDENTIAL
    #: The highest label of what other sessions may send to its sessions; None is the label that
    #: each of them has at the time.
    intake: Label | None = None
    #: Patterns of the agents that it may spawn.
    allow_spawn: list[Word] = ["*"]
    #: Whether a message that steers one of its runs joins the turn under way, instead of ending
    #: the run and beginning another; None leaves it to `delegation.steer_inject`.
    steer_inject: bool | None = None
    #: Whether the facts worth keeping of each turn are remembered by themselves.
    memory_auto: bool = False
    #: Model calls of one turn; None leaves it to `limits.max_steps`.
    max_steps: int | None = Field(None, ge=1, le=500)
    #: Tokens; used when the model does not report its own.
    context_window: int = Field(200_000, ge=1_000)

    @property
    def models(self) -> tuple[str, ...]:
        """The model names in the order in which they are tried; never empty."""
        return (self.model,) if isinstance(self.model, str) else tuple(self.model)

    @field_validator("model", mode="before")
    @classmethod
    def _model_or_chain(cls, value: Any) -> Any:
        names = [value] if isinstance(value, str) else value
        named = isinstance(names, list) and all(isinstance(n, str) and n.strip() for n in names)
        if not named or not names:
            raise ValueError("must be a model name or a non-empty list of model names")
        return value

    @field_validator("clearance", "intake", mode="before")
    @classmethod
    def _known_label(cls, value: Any) -> Any:
        try:
            return None if value is None else Label(value)
        except ValueError:
            raise ValueError(f"must be one of {', '.join(Label)}") from None

    @field_validator("intake")
    @classmethod
    def _within_clearance(cls, value: Label | None, info: ValidationInfo) -> Label | None:
        clearance = info.data.get("clearance")
        if value is not None and clearance is not None and not can_flow(value, clearance):
            raise ValueError(f"must not be above the agent's clearance, {clearance}")
        return value


class StoreSettings(_Table):
    """The `[store]` table: where transcripts and events are kept."""

    #: An SQLAlchemy URL; None is an SQLite file in the home folder.
    url: str | None = None
    #: Connections of each process that read; one more writes, and one hears of events.
    pool_size: int = Field(4, ge=1, le=50)

    @field_validator("url")
    @classmethod
    def _known_scheme(cls, value: str | None) -> str | None:
        if value is not None and value.partition("://")[0] not in STORE_SCHEMES:
            starts = " or ".join(f"{scheme}://" for scheme in STORE_SCHEMES)
            raise ValueError(f"must start with {starts}")
        return value


class TemporalSettings(_Table):
    """The `[temporal]` table: which cluster runs the sessions."""

    #: `host:port` of a cluster; None lets `perdure up` start a local server.
    address: str | None = None
    namespace: Word = "default"
    #: The task queue that workers listen on.
    queue: Word = "perdure"
    encryption: EncryptionSettings = EncryptionSettings()

    @field_validator("address")
    @classmethod
    def _host_and_port(cls, value: str | None) -> str | None:
        if value is not None and not _ADDRESS.fullmatch(value):
            raise ValueError("must be host:port, as in localhost:7233")
        return value


class DelegationSettings(_Table):
    """The `[delegation]` table: how sub-agents are looked after."""

    #: As `agents.NAME.steer_inject`, for those that do not say.
    steer_inject: bool = False
    #: Minutes between two looks for runs without a workflow and for results past their time.
    upkeep_minutes: float = Field(10, gt=0, le=1_440)


class AuditSettings(_Table):
    """The `[audit]` table: what vouches for the audit trail."""

    #: The file that says where the trail ends; None is `audit/head` in the home folder. When it
    #: is moved, the file must be moved with it.
    anchor: str | None = None

    @field_validator("anchor")
    @classmethod
    def _absolute(cls, value: str | None) -> str | None:
        if value is not None and not Path(value).is_absolute():
            raise ValueError("must be an absolute path of a file")
        return value


class Settings(_Table):
    """Everything that can be set. Read it with `load_settings`; tests may build it directly."""

    #: The folder all data lives in. Not a key of the file: `--home` or PERDURE_HOME.
    home: Path
    agents: dict[AgentName, AgentSettings] = Field({DEFAULT_AGENT: AgentSettings()}, min_length=1)
    #: The agent of a session that names none.
    default_agent: str = Field(DEFAULT_AGENT, validate_default=True)
    limits: Limits = Limits()
    context: ContextSettings = ContextSettings()
    memory: MemorySettings = MemorySettings()
    store: StoreSettings = StoreSettings()
    temporal: TemporalSettings = TemporalSettings()
    gateway: GatewaySettings = GatewaySettings()
    policy: PolicySettings = PolicySettings()
    channels: dict[ChannelName, ChannelSettings] = {}
    webhooks: dict[ChannelName, WebhookSettings] = {}
    tools: dict[Word, ToolSettings] = {}
    workspace: WorkspaceSettings = WorkspaceSettings()
    models: dict[Word, ModelSettings] = {}
    audit: AuditSettings = AuditSettings()
    delegation: DelegationSettings = DelegationSettings()
    observability: ObservabilitySettings = ObservabilitySettings()
    mcp: dict[ServerName, SourceSettings] = Field({}, validate_default=True)

    _sources: dict[str, str] = PrivateAttr(default_factory=dict)

    @field_validator("default_agent")
    @classmethod
    def _is_configured(cls, value: str, info: ValidationInfo) -> str:
        # Agents that were refused themselves are absent from `data`; their names still count.
        agents = info.data.get("agents", (info.context or {}).get("agents"))
        if isinstance(agents, dict) and value not in agents:
            raise ValueError(f"must be a configured agent: {', '.join(agents)}")
        return value

    @field_validator("mcp")
    @classmethod
    def _has_what_agents_name(
        cls, value: dict[str, SourceSettings], info: ValidationInfo
    ) -> dict[str, SourceSettings]:
        for name, agent in info.data.get("agents", {}).items():
            for entry in agent.tools:
                reference = read_reference(entry)
                if reference is not None and reference.server not in value:
                    table = f"[mcp.{reference.server}]"
                    raise ValueError(f"must have {table}: agents.{name}.tools has {entry!r}")
        return value

    @field_validator("webhooks")
    @classmethod
    def _leads_somewhere(
        cls, value: dict[str, WebhookSettings], info: ValidationInfo
    ) -> dict[str, WebhookSettings]:
        for what in ("agent", "channel"):
            known = info.data.get(f"{what}s")
            for name, hook in value.items():
                named = getattr(hook, what)
                if isinstance(known, dict) and named is not None and named not in known:
                    raise ValueError(f"has in {name} the {what} {named!r}, which is not configured")
        return value

    @property
    def store_url(self) -> str:
        """The SQLAlchemy URL of the store; by default `perdure.db` in the home folder."""
        if self.store.url is not None:
            return self.store.url
        # SQLAlchemy decodes %XX; unquoted, a home with "?" in its name would lose its end.
        return f"sqlite:///{quote(str(self.home / 'perdure.db'))}"

    @property
    def audit_files(self) -> AuditFiles:
        """The key and the anchor of the audit trail."""
        return AuditFiles.of(self.home, self.audit.anchor)

    def agent(self, name: str | None = None) -> AgentSettings:
        """The settings of the agent `name`, or of the default agent.

        Raises:
            NotFound: naming the agents there are.
        """
        known = self.agents.get(self.default_agent if name is None else name)
        if known is None:
            raise NotFound(f"There is no agent {name!r}.", self._configured())
        return known

    def agent_for(self, key: SessionKey, asked: str | None = None) -> str:
        """Which agent the session `key` runs: `asked`, else its marker, else the default.

        Raises:
            InvalidArgument: if that agent is not configured, or if `asked` is another than the
                one the key names.
        """
        marked = key.get(Marker.AGENT)
        if asked is not None and marked is not None and asked != marked:
            raise InvalidArgument(
                f"The session {key} belongs to the agent {marked!r}, not to {asked!r}.",
                "Leave the agent out, or use a key without the agent marker.",
            )
        name = next(name for name in (asked, marked, self.default_agent) if name is not None)
        if name not in self.agents:
            raise InvalidArgument(f"There is no agent {name!r}.", self._configured())
        return name

    def source(self, key: str) -> str:
        """Where the value of the dotted `key` came from.

        One of "default", "FILE:LINE", "environment PERDURE_X" and "command line".
        """
        return self._sources.get(key, "default")

    def with_sources(self, sources: Mapping[str, str]) -> Settings:
        """The same settings, knowing where each value came from (by dotted key)."""
        known = self.model_copy()
        known._sources = dict(sources)
        return known

    def _configured(self) -> str:
        return f"Configured agents: {', '.join(self.agents)}."
