"""What is in force and why: every setting with its value and where it came from."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from perdure.config.keys import dotted, flatten
from perdure.config.masking import mask
from perdure.config.settings import Settings


class Entry(BaseModel):
    """One effective setting. `secret` tells that something in `value` is masked."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str
    value: str | int | float | list[str] | None
    source: str
    secret: bool


def effective(settings: Settings) -> list[Entry]:
    """Every setting in the order of the models, fit to be shown."""
    entries = []
    for key, value in flatten(settings.model_dump(mode="json")):
        name = dotted(key)
        value = settings.store_url if name == "store.url" else value
        shown = mask(str(key[-1]), value)
        entries.append(
            Entry.model_validate(
                {
                    "key": name,
                    "value": shown,
                    "source": settings.source(name),
                    "secret": shown != value,
                }
            )
        )
    return entries
