"""The MCP way in: sessions, runs and memory as tools of any MCP client, by HTTP and by pipes.

Invariant: a tool does what `SessionClient` does on behalf of who asks, and is offered to nobody
who may not use it. No context of a session is offered, and no approval: a model could give it.
"""
