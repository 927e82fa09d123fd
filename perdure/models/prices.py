"""What a call of a model may cost, before it is made.

Invariant: an estimate, for budgets; what was paid is what the provider reports.
"""

from __future__ import annotations

from collections.abc import Sequence

from perdure.models.rehearsal import REHEARSAL


def price(models: Sequence[str], input_tokens: int, output_tokens: int) -> float | None:
    """US dollars for a call of the dearest of `models`, any of which may answer; None where no
    price is known."""
    known = [
        cost for name in models if (cost := _price(name, input_tokens, output_tokens)) is not None
    ]
    return max(known, default=None)


def _price(name: str, input_tokens: int, output_tokens: int) -> float | None:
    if name == REHEARSAL:
        return 0.0
    # The table of prices takes a moment to load, and is needed where there is a budget only.
    from genai_prices import Usage, calc_price

    provider, _, model = name.rpartition(":")
    usage = Usage(input_tokens=input_tokens, output_tokens=output_tokens)
    try:
        found = calc_price(usage, model, provider_id=provider.partition("-")[0] or None)
    except (LookupError, ValueError):
        return None
    return float(found.total_price)
