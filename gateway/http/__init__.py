"""The HTTP way in: sessions as JSON, their events as SSE, refusals as problem details.

Invariant: it holds nothing that a session needs. A gateway may die, or run beside others, at any
moment; whoever was connected comes back with a message id or a cursor and misses nothing.
"""

from gateway.http.server import serve

__all__ = ["serve"]
