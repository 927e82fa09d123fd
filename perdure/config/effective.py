"""What is in force and why: every setting with its value and where it came from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, SecretStr

from perdure.config.keys import dotted, flatten
from perdure.config.masking import MASK, mask
from perdure.config.settings import Settings
from perdure.domain.labels import Label
from perdure.policy.rules import Rule


class Entry(BaseModel):
    """One effective setting. `secret` tells that something in `value` is masked."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str
    value: str | int | float | list[str] | None
    source: str
    secret: bool


def effective(settings: Settings) -> list[Entry]:
    """Every setting in the order of the models, fit to be shown.

    Of a rule, the keys that it has; each of its conditions is one text.
    """
    values = settings.model_dump()
    values["policy"]["rules"] = [_rule(rule) for rule in settings.policy.rules]
    entries = []
    for key, value in flatten(values):
        name = dotted(key)
        value = _plain(settings.store_url if name == "store.url" else value)
        shown = MASK if isinstance(value, SecretStr) else value
        # A level is none, also of a folder or tool that is named as one.
        if not isinstance(value, Label):
            shown = mask(str(key[-1]), shown)
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


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    return list(value) if isinstance(value, tuple) else value


def _rule(rule: Rule) -> dict[str, Any]:
    when = [
        f"{one.field} {one.op} {json.dumps(one.value, ensure_ascii=False)}" for one in rule.when
    ]
    return rule.model_dump(mode="json", exclude_none=True) | {"when": when}
