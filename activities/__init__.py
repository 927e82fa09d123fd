"""Every side effect of a session, each safe to retry.

Invariant: an activity may run any number of times and is seen once: what it commits is keyed by
(session, turn, step), and a retry finds it there.
"""
