"""What may happen: labels' invariants, rules, hooks and secret detection, as pure functions.

Invariant: no clock, no I/O, no state: the same facts and rules give the same decision, in a
workflow, in an activity and in a simulation. Import the modules themselves: `rules` is all that
settings need, and loads without the secret detectors.
"""
