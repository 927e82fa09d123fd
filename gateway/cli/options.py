"""The options and arguments that commands share.

Invariant: they mean the same everywhere.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Home = Annotated[
    Path | None,
    typer.Option(
        "--home",
        metavar="DIR",
        help="The folder all data lives in; else PERDURE_HOME, else ~/.perdure.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Write JSON, for scripts.")]
Key = Annotated[
    str,
    typer.Argument(
        metavar="KEY", help="The session, as tenant:user[~marker~value]….", show_default=False
    ),
]
