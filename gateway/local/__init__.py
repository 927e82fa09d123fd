"""The local stack: a Temporal server, workers and the gateway, on one home folder.

Invariant: what is started here is stopped here, and one home runs at most one stack.
"""

from gateway.local.home import StackInfo, find_stack
from gateway.local.stack import Stack
from gateway.local.stopping import Stopped, down
from gateway.local.temporal import TemporalServer, running_server

__all__ = [
    "Stack",
    "StackInfo",
    "Stopped",
    "TemporalServer",
    "down",
    "find_stack",
    "running_server",
]
