"""The words of the house: keys, labels, messages, envelopes, limits, states, errors.

Invariant: pydantic and the standard library only; values here are facts and never change.
"""
