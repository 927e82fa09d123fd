"""What a process tells about itself: metrics, traces, logs. Knows no Temporal.

Invariant: ids, names, states and figures only; never the text of a message, an argument, a result
or a key. Labels of metrics are names from the settings and members of closed sets.
"""
