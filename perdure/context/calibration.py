"""The estimate of tokens, corrected by what a provider reports.

Invariant: pure and bounded. Whatever a provider says, an estimate is changed by no more than the
factor allows, and one strange answer moves it little.
"""

from __future__ import annotations

import math

from pydantic import Field

from perdure.domain.messages import Frozen

#: The factor's bounds. Tokenizers differ from each other by less; beyond it the report counts
#: something else.
LOWEST = 0.5
HIGHEST = 2.0
#: The weight of a new report, once there are as many as make the plain mean weigh less.
_SMOOTHING = 0.2
#: Requests below this say more of their frame (tools, roles) than of their text.
SMALLEST_SAMPLE = 500


class Calibration(Frozen):
    """How one model's tokenizer compares with the estimate; one for each model."""

    factor: float = Field(1.0, ge=LOWEST, le=HIGHEST)
    samples: int = Field(0, ge=0)

    def learned(self, estimated: int, reported: int) -> Calibration:
        """The calibration after a request of `estimated` tokens that the provider counted as
        `reported`, cached ones included. Requests that are too small teach nothing, nor do
        reports out of bounds."""
        if estimated < SMALLEST_SAMPLE or reported <= 0:
            return self
        seen = reported / estimated
        if not LOWEST <= seen <= HIGHEST:
            return self
        weight = max(_SMOOTHING, 1 / (self.samples + 1))
        factor = self.factor + weight * (seen - self.factor)
        return Calibration(factor=min(HIGHEST, max(LOWEST, factor)), samples=self.samples + 1)

    def calibrated(self, tokens: int) -> int:
        """What `tokens` estimated tokens are for the model, rounded up."""
        return math.ceil(tokens * self.factor)

    def affordable(self, budget: int) -> int:
        """The most estimated tokens that fit in `budget` of the model's, rounded down."""
        return math.floor(budget / self.factor)
