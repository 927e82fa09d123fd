"""Perdure, the library: durable AI-agent sessions without the orchestration.

Invariant: nothing below this package knows Temporal or the rooms built on top of it.
"""
