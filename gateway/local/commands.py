"""How our own processes are started: the arguments and the environment of each.

Invariant: a child imports the same Perdure as its parent, whatever folder it is started in.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from perdure.config.observability import ObservabilitySettings

#: The folder from which this process imports Perdure: a checkout, or site-packages.
_ROOT = Path(__file__).parent.parent.parent

#: `-P` keeps the current folder off the import path: a `worker.py` there is not ours.
_PYTHON = (sys.executable, "-P", "-m")


def worker_argv(home: Path) -> tuple[str, ...]:
    """The command line of a worker on `home`."""
    return (*_PYTHON, "worker", "--home", str(home))


def gateway_argv(home: Path, port: int | None = None) -> tuple[str, ...]:
    """The command line of the HTTP gateway on `home`; without a port it takes the configured."""
    told = () if port is None else ("--port", str(port))
    return (*_PYTHON, "gateway.http", "--home", str(home), *told)


def own_environment() -> dict[str, str]:
    """The environment of this process, in which Python finds this Perdure."""
    environ = dict(os.environ)
    if str(_ROOT) not in site_folders():
        known = environ.get("PYTHONPATH")
        environ["PYTHONPATH"] = os.pathsep.join([str(_ROOT), *([known] if known else [])])
    return environ


def worker_ports(settings: ObservabilitySettings, number: int) -> dict[str, str]:
    """Where the worker of that number, from 1, serves metrics: each has ports of its own, the
    configured ones and those that follow."""
    ports = {
        "METRICS_PORT": settings.metrics_port,
        "TEMPORAL_METRICS_PORT": settings.temporal_metrics_port,
    }
    return {
        f"PERDURE_OBSERVABILITY_{name}": str(port + number - 1)
        for name, port in ports.items()
        if port
    }


def site_folders() -> set[str]:
    """The folders that Python searches for installed packages."""
    return {entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")}


def local_environment() -> dict[str, str]:
    """`own_environment` for processes of a local server.

    Without Temporal's own settings: their TLS, API key and profile are for a cluster elsewhere.
    """
    environ = {
        name: value for name, value in own_environment().items() if not name.startswith("TEMPORAL_")
    }
    environ["TEMPORAL_CONFIG_FILE"] = os.devnull
    return environ
