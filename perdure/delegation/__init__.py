"""Delegation: what a parent hands to a child, what is checked of it, and what comes back.

Invariant: nothing here starts, stops or stores a run. It is given texts and folders, and decides
by them alone.
"""
