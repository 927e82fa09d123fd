"""Benchmarks: what Perdure costs, measured beside the bare thing on the same server and run."""
