"""`perdure encryption new-key`: keys for what Temporal keeps.

Invariant: a key is written where it is asked for, readable by its owner alone, and over nothing.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.options import AsJson
from gateway.cli.output import console, print_json

app = typer.Typer()
_encryption = typer.Typer(help="Keys for what Temporal keeps.", no_args_is_help=True)
app.add_typer(_encryption, name="encryption")


@_encryption.callback()
def _group() -> None:
    """Keys for what Temporal keeps."""


@_encryption.command(name="new-key")
def new_key(
    as_json: AsJson = False,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="Write it there instead of showing it."),
    ] = None,
) -> None:
    """Make a key: 32 random bytes, in base64."""
    from perdure.domain.errors import Conflict, InvalidArgument
    from perdure.encryption import new_key as made

    key = made()
    if file is None:
        print_json({"key": key}) if as_json else typer.echo(key)
        return
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise Conflict(
            f"{file} exists already, and may be the only copy of a key.", "Name another file."
        ) from None
    except OSError as error:
        raise InvalidArgument(
            f"{file} cannot be written: {error.strerror}.", "Name a file that can."
        ) from None
    with open(descriptor, "w") as written:
        written.write(f"{key}\n")
    if as_json:
        print_json({"path": str(file)})
    else:
        console().print(f"{file} is written. Name it in [temporal.encryption.keys], and keep a")
        console().print("copy: without it nothing that is sealed under it can be read again.")
