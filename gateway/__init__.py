"""Every way in. All of them reach sessions through `gateway.client`.

Invariant: only `gateway.local` starts processes.
"""
