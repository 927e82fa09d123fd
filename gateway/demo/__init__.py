"""`perdure demo`: delegated work that goes on while its processes are killed, and the proof.

Invariant: what is reported is computed from the store, from Temporal's history and from the files
of channels and workspaces. The demo only remembers what it sent and whom it killed, which nothing
else can know.
"""
