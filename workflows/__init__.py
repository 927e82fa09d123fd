"""What happens next, and nothing else: deterministic orchestration of sessions.

Invariant: no clock, no I/O, no conversation text. Every decision follows from the messages and
results that Temporal's history holds, so a replay anywhere decides the same.
"""
