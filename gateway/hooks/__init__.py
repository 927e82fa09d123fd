"""Webhooks: what other services send us, checked, understood, and put into sessions.

Invariant: nothing of a request is believed before its signature is; and what it says it says at the
level, in the tenant and to the agent of its table in the settings.
"""
