"""The `[context]` table: when a session's history is summarised, by what, and at what expense.

Invariant: whatever is set here, nothing is lost: the numbers decide what a model reads at once,
never what is kept.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator, model_validator

from perdure.context.summaries import ContextParameters


class ContextSettings(ContextParameters):
    """The numbers of `ContextParameters`, and who writes the summaries."""

    #: Who summarises: a model name, or several to be tried in order; None is the agent's own.
    summary_model: str | list[str] | None = None
    #: What the summaries of one session may take of models in a day (UTC): tokens read and
    #: written. Beyond it they are made without a model. About fifty times the default context,
    #: far above what a busy session needs: it stops a runaway.
    daily_tokens: int = Field(10_000_000, ge=0)
    #: The same in US dollars, where prices are known; None is no limit.
    daily_cost: float | None = Field(None, ge=0, allow_inf_nan=False)

    def models(self, agents_own: tuple[str, ...]) -> tuple[str, ...]:
        """The names of the models that summarise for an agent, in the order they are tried."""
        if self.summary_model is None:
            return agents_own
        if isinstance(self.summary_model, str):
            return (self.summary_model,)
        return tuple(self.summary_model)

    @field_validator("summary_model", mode="before")
    @classmethod
    def _model_or_chain(cls, value: Any) -> Any:
        names = [value] if isinstance(value, str) else value
        named = isinstance(names, list) and all(isinstance(n, str) and n.strip() for n in names)
        if value is not None and (not named or not names):
            raise ValueError("must be a model name or a non-empty list of model names")
        return value

    @model_validator(mode="after")
    def _in_order(self) -> ContextSettings:
        if self.leaf_target_min > self.leaf_target_max:
            raise ValueError("leaf_target_min must not be above leaf_target_max")
        return self
