"""The settings that say where information may flow: labels of places, and rules.

Invariant: a level is a `Label` or an error; what is not given a level is PUBLIC as a source and,
as a destination, no more than its table's default.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from perdure.domain.labels import Label, join, meet
from perdure.policy.rules import Rule

Word = Annotated[str, StringConstraints(min_length=1)]


def _label(value: Any) -> Any:
    try:
        return Label(value)
    except ValueError:
        raise ValueError(f"must be one of {', '.join(Label)}") from None


LabelWord = Annotated[Label, BeforeValidator(_label)]

#: The model that runs in this process and tells nobody.
_LOCAL_MODELS = frozenset({"rehearsal"})


class Table(BaseModel):
    """A closed table of the file."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class PolicySettings(Table):
    """The `[policy]` table: rules, and how long an approval may be waited for."""

    #: Seconds until a call that nobody approves is denied.
    approval_timeout: float = Field(86_400.0, gt=0, allow_inf_nan=False)
    #: Whether a session that is above PUBLIC may spawn: its child has its level from the start.
    spawn_from_tainted: Literal["allow", "block"] = "allow"
    #: `[[policy.rules]]`, as `perdure.policy.parsing` reads them.
    rules: tuple[Rule, ...] = ()


class ToolSettings(Table):
    """One `[tools.NAME]` table: what a tool's results are, at least."""

    label: LabelWord = Label.PUBLIC


class WorkspaceSettings(Table):
    """The `[workspace]` table."""

    #: Pattern of paths to the label of what lies there: `"finance/**" = "CONFIDENTIAL"`.
    labels: dict[Word, LabelWord] = {}

    def label_of(self, path: str) -> Label:
        """The highest label of the patterns that a relative path matches."""
        return join(
            *(
                label
                for pattern, label in self.labels.items()
                if fnmatchcase(path, pattern) or fnmatchcase(f"{path}/", pattern)
            )
        )


class ModelSettings(Table):
    """One `[models."NAME"]` table: what the provider behind a name, or a pattern, may see."""

    clearance: LabelWord = Label.CONFIDENTIAL


def model_clearance(models: dict[str, ModelSettings], chain: tuple[str, ...]) -> Label:
    """What all models of a chain may see: a session above it is refused, not sent elsewhere."""
    return meet(*(_clearance(models, name) for name in chain))


def _clearance(models: dict[str, ModelSettings], name: str) -> Label:
    if name in models:
        return models[name].clearance
    matching = [each.clearance for pattern, each in models.items() if fnmatchcase(name, pattern)]
    if matching:
        return meet(*matching)
    return Label.RESTRICTED if name in _LOCAL_MODELS else ModelSettings().clearance
