"""Refusals for people and for scripts: one line, one exit code each.

Invariant: the exit code depends on the refusal's code alone, by the table below.
"""

from __future__ import annotations

import sys

import typer

from gateway.cli.output import print_json
from perdure.domain.errors import Code, InvalidArgument, Refusal

#: Refusals that are not listed exit with `OTHER`.
EXIT_CODES = {
    Code.INVALID_ARGUMENT: 2,
    Code.NOT_FOUND: 3,
    Code.UNAUTHENTICATED: 4,
    Code.DENIED: 4,
    Code.LIMIT_EXCEEDED: 4,
    Code.CONFLICT: 4,
    Code.RATE_LIMITED: 4,
    Code.UNAVAILABLE: 5,
    # As the `timeout` command has it.
    Code.TIMEOUT: 124,
}
OTHER = 1
#: Ctrl-C: 128 and the number of SIGINT, as shells have it.
INTERRUPTED = 130


def refuse(refusal: Refusal, as_json: bool) -> int:
    """Tell a refusal, on stdout as `{"error": …}` or on stderr as a line; its exit code."""
    if as_json:
        print_json({"error": refusal.model_dump(mode="json")})
    else:
        print(f"error: {refusal.message} {refusal.hint}".rstrip(), file=sys.stderr)
    return EXIT_CODES.get(refusal.code, OTHER)


def usage_error(error: typer.TyperException) -> InvalidArgument:
    """What is wrong with a command line, as a refusal."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "perdure"
    return InvalidArgument(error.format_message(), f"See `{command} --help`.")
