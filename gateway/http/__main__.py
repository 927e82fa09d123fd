"""`python -m gateway.http`: one gateway process. The local stack starts it like this."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from gateway.connection import leave
from gateway.http.server import serve
from perdure.config import load_settings
from perdure.domain.errors import PerdureError
from perdure.telemetry import logs, tracing


def main() -> None:
    """The command line of a gateway process: exit code 0 after a stop, 1 when it cannot serve."""
    parser = argparse.ArgumentParser(prog="gateway.http", description=__doc__)
    parser.add_argument("--home", type=Path)
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    arguments = parser.parse_args()
    try:
        settings = load_settings(arguments.home)
        logs.configure(settings.observability.logs)
        tracing.configure(settings.observability, "perdure-gateway", settings.temporal.namespace)
        asyncio.run(serve(settings, arguments.host, arguments.port))
    except PerdureError as error:
        print(f"The gateway cannot serve. {error}", file=sys.stderr)
        leave(1)
    tracing.stop()
    leave(0)


if __name__ == "__main__":
    main()
