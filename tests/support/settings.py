"""Settings as a person writes them: a file, an environment, and what loading them comes to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from perdure.config import Settings, load_settings
from perdure.domain.errors import InvalidArgument


def load(home: Path, toml: str | bytes | None = None, environ: Mapping[str, str] = {}) -> Settings:
    """The settings of a home, with `toml` as its perdure.toml."""
    if toml is not None:
        raw = toml if isinstance(toml, bytes) else toml.encode()
        (home / "perdure.toml").write_bytes(raw)
    return load_settings(home, environ)


def refused(home: Path, toml: str | bytes | None = None, environ: Mapping[str, str] = {}) -> str:
    """How the settings of a home are refused."""
    with pytest.raises(InvalidArgument) as error:
        load(home, toml, environ)
    return str(error.value)
