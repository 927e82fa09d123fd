"""`perdure approvals list`, `approve`, `deny`: a person's word on the calls that wait for one.

Invariant: what is decided is one call by its id, as `list` showed it; a decision is final.
"""

from __future__ import annotations

import asyncio
import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from gateway.cli.options import AsJson, Home
from gateway.cli.output import console, print_json
from perdure.domain.errors import InvalidArgument

if TYPE_CHECKING:
    from rich.console import Console

    from perdure.domain.approvals import Approval, ApprovalList

#: Of a call's arguments a person sees this much; `--json` has them all.
_ARGUMENTS = 400


class _ListByDefault(TyperGroup):
    """A group of which `list` may be left out."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Have `perdure approvals --all` mean `perdure approvals list --all`."""
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = ["list", *args]
        return super().parse_args(ctx, args)


app = typer.Typer()
_approvals = typer.Typer(
    help="Show the tool calls that wait for a person, and approve or deny them.", cls=_ListByDefault
)
app.add_typer(_approvals, name="approvals")

ApprovalId = Annotated[
    str, typer.Argument(metavar="ID", help="The approval, as the list shows it.")
]
Reason = Annotated[
    str,
    typer.Option(
        "--reason", metavar="TEXT", help="Why; the model reads it, and the audit trail keeps it."
    ),
]
By = Annotated[
    str | None,
    typer.Option(
        "--by", metavar="NAME", help="Who decides; else who is logged in.", show_default=False
    ),
]


@_approvals.command("list")
def list_(
    home: Home = None,
    as_json: AsJson = False,
    session: Annotated[
        str | None, typer.Option("--session", metavar="KEY", help="Only those of this session.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Those that were decided or expired, too.")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1_000, help="How many.")] = 50,
    offset: Annotated[
        int, typer.Option("--offset", min=0, help="How many of the newest to skip.")
    ] = 0,
) -> None:
    """List the calls that wait for a person, newest first. It is what `approvals` alone does.

    Long arguments are cut for people; --json has them whole.
    """
    page = asyncio.run(_list(home, session, every, limit, offset))
    if as_json:
        print_json(page)
    else:
        _print_list(page, session, every, offset)


@_approvals.command()
def approve(
    approval_id: ApprovalId,
    home: Home = None,
    as_json: AsJson = False,
    reason: Reason = "",
    by: By = None,
    arguments: Annotated[
        str | None,
        typer.Option(
            "--arguments",
            metavar="JSON",
            help="Let the call run with these arguments instead, which is recorded as a change.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Let a call run, as it was shown; its session goes on. Policy is asked again before it."""
    _decide(home, approval_id, True, by, reason, arguments, as_json)


@_approvals.command()
def deny(
    approval_id: ApprovalId,
    home: Home = None,
    as_json: AsJson = False,
    reason: Reason = "",
    by: By = None,
) -> None:
    """Refuse a call; its session goes on, and the model reads who denied it and why."""
    _decide(home, approval_id, False, by, reason, None, as_json)


async def _list(
    home: Path | None, session: str | None, every: bool, limit: int, offset: int
) -> ApprovalList:
    from gateway.client import SessionClient
    from perdure.config import load_settings
    from perdure.domain.approvals import ApprovalState

    state = None if every else ApprovalState.PENDING
    async with SessionClient.connect(load_settings(home), reading=True) as client:
        return await client.approvals(session_key=session, state=state, limit=limit, offset=offset)


def _decide(
    home: Path | None,
    approval_id: str,
    approve: bool,
    by: str | None,
    reason: str,
    arguments: str | None,
    as_json: bool,
) -> None:
    by = by or _os_user()

    async def decide() -> Approval:
        from gateway.client import SessionClient
        from perdure.config import load_settings

        async with SessionClient.connect(load_settings(home)) as client:
            return await client.decide(
                approval_id, approve=approve, by=by, reason=reason, arguments=arguments
            )

    decided = asyncio.run(decide())
    if as_json:
        print_json(decided)
        return
    other = ", with other arguments" if decided.changed is not None else ""
    console().print(
        f"{decided.id} is {decided.state} by {decided.decided_by}{other}; "
        f"{decided.session_key} goes on."
    )


def _os_user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        raise InvalidArgument("Nobody is logged in by a name.", "Say who decides: --by.") from None


def _print_list(page: ApprovalList, session: str | None, every: bool, offset: int) -> None:
    out = console()
    for approval in page.approvals:
        _print_approval(out, approval)
    seen = offset + len(page.approvals)
    same = (f" --session {session}" if session else "") + (" --all" if every else "")
    if not page.total:
        whose = f" of {session}" if session else ""
        out.print(f"No call{whose} {'was ever' if every else 'is'} waiting for a person.")
    elif offset or seen < page.total:
        out.print(f"{offset + 1}–{seen} of {page.total}", style="dim")
    if seen < page.total:
        out.print(f"More: perdure approvals{same} --offset {seen}", style="dim")
    if page.approvals and not every:
        out.print("perdure approvals approve|deny ID [--reason TEXT]", style="dim")


def _print_approval(out: Console, approval: Approval) -> None:
    from gateway.cli.words import one_line, printable, shown_arguments

    arguments = one_line(shown_arguments(approval.arguments), _ARGUMENTS)
    out.print(f"{approval.id}  {printable(approval.tool)} {arguments}".rstrip(), style="bold")
    out.print(
        f"  {printable(approval.session_key)} · turn {approval.turn} · asked for by "
        f"{printable(approval.asked_by)} · {_state(approval)}"
    )
    out.print(f"  {one_line(approval.reason, _ARGUMENTS)}")
    if approval.changed is not None:
        changed = one_line(shown_arguments(approval.changed), _ARGUMENTS)
        out.print(f"  approved with other arguments: {changed}")
    out.print()


def _state(approval: Approval) -> str:
    from gateway.cli.words import ago, left, one_line
    from perdure.domain.approvals import ApprovalState

    if approval.state is ApprovalState.PENDING:
        return f"expires in {left(approval.expires_at)}"
    by = f" by {approval.decided_by}" if approval.decided_by else ""
    when = f" {ago(approval.decided_at)}" if approval.decided_at else ""
    note = f": {approval.note}" if approval.note else ""
    return one_line(f"{approval.state}{by}{when}{note}", _ARGUMENTS)
