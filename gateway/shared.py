"""What a `SessionClient` and those on behalf of its callers have in common.

Invariant: nothing here knows a caller.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from temporalio.client import Client

from gateway.admission import Admission
from gateway.refusals import Refusals
from gateway.workflows import SessionWorkflows
from perdure.config import Settings
from perdure.guard import Guard
from perdure.memory import Memory
from perdure.store import Store


class Shared:
    """The parts of a client that are one for all on whose behalf it acts."""

    def __init__(self, settings: Settings, temporal: Callable[[], Client], store: Store) -> None:
        self.settings = settings
        self.store = store
        self.guard = Guard(settings)
        self.refusals = Refusals(store)
        self.workflows = SessionWorkflows(temporal, settings.temporal.queue)
        self.admission = Admission(settings, store, self.workflows)

    @cached_property
    def memory(self) -> Memory:
        """What agents remember; it is opened by whoever asks first."""
        return Memory.at(self.settings.memory, self.settings.home)
