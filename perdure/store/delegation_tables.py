"""The tables of delegation: the runs of sub-agents, and what calls wait for.

Invariant: a run's row tells its whole life; `state` only goes forward. An open wait is a call of
a turn under way that has no result yet.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from perdure.store.tables import Moment, metadata

#: One row per run. `path` is the ids of the runs above it and its own, each followed by "/", so
#: a subtree is a prefix. `parent_turn` … `parent_call` is the call that spawned it, in `epoch` of
#: its parent; a steered run has the call of the run that it follows (`follows`). `cause` is the
#: call or the person that asked for it. `sync` says that the call waits for it. `label` is the
#: task's, and the result's once it has ended. `stop` is why it was told to stop. `result` is what
#: the parent reads. The budgets bound the tokens and the cost of all sessions of the subtree;
#: what is reserved is what the step under way may take of them.
runs = Table(
    "runs",
    metadata,
    Column("run_id", String(160), primary_key=True),
    Column("session_key", String(512), nullable=False),
    Column("parent_key", String(512), ForeignKey("sessions.session_key"), nullable=False),
    Column("path", Text, nullable=False),
    Column("depth", Integer, nullable=False),
    Column("parent_turn", Integer, nullable=False),
    Column("parent_step", Integer, nullable=False),
    Column("parent_call", Integer, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("sync", Boolean, nullable=False),
    Column("agent", String(128), nullable=False),
    Column("packet", JSON, nullable=False),
    Column("label", String(16), nullable=False),
    Column("state", String(16), nullable=False),
    Column("stop", String(32), nullable=True),
    Column("end_reason", String(32), nullable=True),
    Column("token_budget", Integer, nullable=True),
    Column("cost_budget", Float, nullable=True),
    Column("reserved_tokens", Integer, nullable=False, default=0),
    Column("reserved_cost", Float, nullable=False, default=0.0),
    Column("repairs", Integer, nullable=False, default=0),
    Column("result", JSON, nullable=True),
    Column("follows", String(160), nullable=True),
    Column("cause", String(640), nullable=False),
    Column("steered_at", Moment, nullable=True),
    Column("queued_at", Moment, nullable=False),
    Column("queue_until", Moment, nullable=False),
    Column("started_at", Moment, nullable=True),
    Column("run_until", Moment, nullable=True),
    Column("ended_at", Moment, nullable=True),
    #: When the result was handed to the parent, or was told where it could not be.
    Column("handed_at", Moment, nullable=True),
    UniqueConstraint("session_key"),
    Index(None, "parent_key", "state"),
    Index(None, "state"),
    Index(None, "ended_at"),
    Index(None, "path"),
    Index(None, "follows"),
)

#: One row per session or run that an open call waits for. Closed with the call's result or turn.
waits = Table(
    "waits",
    metadata,
    Column("session_key", String(512), ForeignKey("sessions.session_key"), primary_key=True),
    Column("turn", Integer, primary_key=True),
    Column("step", Integer, primary_key=True),
    Column("call", Integer, primary_key=True),
    Column("target_key", String(512), primary_key=True),
    Column("until", Moment, nullable=False),
    Index(None, "target_key"),
)
