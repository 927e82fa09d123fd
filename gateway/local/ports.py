"""Free ports on the loopback interface.

Invariant: a port is handed out once by a process, and the kernel never lends it to an outgoing
connection, so that a server which died finds its port free when it comes back.
"""

from __future__ import annotations

import random
import socket

from perdure.domain.errors import Unavailable

LOOPBACK = "127.0.0.1"

#: Below the ranges from which Linux (32768) and macOS (49152) take ports for outgoing
#: connections, and above those that services are known by.
_RANGE = range(20_000, 32_768)

#: A machine on which so many ports in a row are taken has none to give.
_TRIES = 500

_handed_out: set[int] = set()


def free_ports(count: int) -> list[int]:
    """`count` different ports that are free now. Another process may still be faster.

    Raises:
        Unavailable: when there are none.
    """
    found: list[int] = []
    for port in random.sample(_RANGE, _TRIES):
        if len(found) == count:
            break
        if port not in _handed_out and is_free(port):
            found.append(port)
    if len(found) < count:
        raise Unavailable(
            f"No {count} free ports were found between {_RANGE.start} and {_RANGE.stop - 1}.",
            "Stop what holds them, or name the ports yourself.",
        )
    _handed_out.update(found)
    return found


def is_free(port: int, host: str = LOOPBACK) -> bool:
    """Whether a server could listen on `port` of `host` now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as listener:
        # As servers do: a connection in TIME_WAIT does not make a port taken.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError:
            return False
    return True
