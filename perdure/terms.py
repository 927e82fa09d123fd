"""What the settings say of messages between sessions, as the store takes it."""

from __future__ import annotations

from perdure.config import Settings
from perdure.domain.labels import Label
from perdure.store.addressing import Ceilings, Terms


def terms_of(settings: Settings) -> Terms:
    """The terms of an installation."""

    def ceilings_of(agent: str) -> Ceilings:
        known = settings.agents.get(agent)
        if known is None:
            # An agent that is no longer configured answers nothing, and keeps what it has.
            return Ceilings(None, Label.RESTRICTED)
        return Ceilings(known.intake, known.clearance)

    return Terms(settings.limits, ceilings_of, settings.policy.approval_timeout)
