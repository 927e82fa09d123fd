"""Runs for people: seen, steered and stopped from outside their sessions.

Invariant: what is above `gateway.level` is not shown here and cannot be touched from here; the
answer is the one for a run that is not there.
"""

from __future__ import annotations

from contextlib import aclosing

from ulid import ULID

from activities.looking_after import NotRunning, Steering, SteerResult
from activities.post import Post
from gateway.workflows import SessionWorkflows
from perdure.config import Settings
from perdure.delegation.results import RunResult
from perdure.domain.envelopes import Envelope, Sender
from perdure.domain.errors import InvalidArgument, NotFound
from perdure.domain.labels import can_flow
from perdure.domain.messages import Frozen
from perdure.domain.runs import EndReason, RunState
from perdure.domain.states import EventKind
from perdure.store import Store
from perdure.store.run_views import PAGE, RunList
from perdure.store.runs import Run
