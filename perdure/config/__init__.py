"""Settings: one perdure.toml, overridden by PERDURE_* variables.

Invariant: settings are read once, wholly checked, and never change afterwards; each value
knows where it came from.
"""

from perdure.config.default import DEFAULT_TOML, write_default
from perdure.config.effective import Entry, effective
from perdure.config.gateway import GatewaySettings
from perdure.config.load import home_folder, load_settings
from perdure.config.settings import (
    AgentSettings,
    Settings,
    StoreSettings,
    TemporalSettings,
)

__all__ = [
    "DEFAULT_TOML",
    "AgentSettings",
    "Entry",
    "GatewaySettings",
    "Settings",
    "StoreSettings",
    "TemporalSettings",
    "effective",
    "home_folder",
    "load_settings",
    "write_default",
]
