"""`perdure policy test`, `explain`, `hooks`: what policy would decide, and why it did.

Invariant: nothing here changes what is decided; the answers are the engine's own.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli.audit import read_entry
from gateway.cli.options import AsJson, Home
from gateway.cli.output import console, print_json

if TYPE_CHECKING:
    from rich.console import Console

    from perdure.audit import Record
    from perdure.config.toml_file import TomlFile
    from perdure.policy.rules import Rules
    from perdure.policy.samples import Sample, Trial

app = typer.Typer()
_policy = typer.Typer(help="Try rules, and explain decisions.", no_args_is_help=True)
app.add_typer(_policy, name="policy")


@_policy.command("test")
def try_rules(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="TOML: [[samples]], and the [[policy.rules]] they try.",
            exists=True,
            dir_okay=False,
            show_default=False,
        ),
    ],
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Run rules against sample calls; exit code 1 when a decision is not the expected one.

    A sample has hook, expect (an action) and the fields of its hook: label, tool, args, text,
    channel, destination… `perdure policy hooks` lists them; name and decided_by are optional. A
    file without rules of its own tries those of perdure.toml.
    """
    from perdure.policy.samples import run_samples

    samples, rules = _read(file, home)
    trials = run_samples(samples, rules)
    passed = all(trial.passed for trial in trials)
    if as_json:
        print_json({"ok": passed, "samples": [_document(trial) for trial in trials]})
    else:
        _print_trials(trials)
    raise typer.Exit(0 if passed else 1)


@_policy.command()
def explain(
    seq: Annotated[
        int,
        typer.Argument(
            metavar="ID",
            min=1,
            help="The decision's number in the audit trail.",
            show_default=False,
        ),
    ],
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Explain a past decision: what decided, every rule as it was evaluated, the labels."""
    record = asyncio.run(read_entry(home, seq))
    if as_json:
        print_json(record.exported())
    else:
        _print_decision(console(), record)


@_policy.command()
def hooks(home: Home = None, as_json: AsJson = False) -> None:
    """List the hooks, the fields that a rule may name there, and what REDACT redacts."""
    del home  # the hooks of every home are the same
    from gateway.cli.tables import columns, print_table
    from perdure.policy.facts import REDACTABLE, fields_of
    from perdure.policy.hooks import Hook

    if as_json:
        told = [
            {"hook": hook, "fields": fields_of(hook), "redacts": REDACTABLE.get(hook)}
            for hook in Hook
        ]
        print_json({"hooks": told})
        return
    # What every hook has is said once.
    always = fields_of(Hook.SESSION_RESET)
    table = columns("hook", "redacts", "fields")
    for hook in Hook:
        own = [f"{name}NAME" if name.endswith(".") else name for name in fields_of(hook)]
        table.add_row(
            hook,
            REDACTABLE.get(hook, "–"),
            " ".join(name for name in own if name not in always) or "–",
        )
    print_table(console(), table)
    console().print(f"Everywhere: {' '.join(always)}")


def _read(file: Path, home: Path | None) -> tuple[tuple[Sample, ...], Rules]:
    """The samples of a file, and the rules that they try.

    Raises:
        InvalidArgument: telling all that is wrong with the file, with its lines.
    """
    from perdure.config import load_settings
    from perdure.config.toml_file import read_toml
    from perdure.domain.errors import InvalidArgument
    from perdure.policy.parsing import RuleError, RuleErrors, parse_rules
    from perdure.policy.rules import NO_RULES, Rules
    from perdure.policy.samples import parse_samples

    toml = read_toml(file)
    errors: list[RuleError] = [
        RuleError((key,), f"it is no key of such a file: {_KNOWN}.")
        for key in toml.values
        if key not in ("policy", "samples")
    ]
    policy = toml.values.get("policy", {})
    if not isinstance(policy, dict) or set(policy) - {"rules"}:
        errors.append(RuleError(("policy",), f"[policy] holds rules alone here: {_KNOWN}."))
        policy = {}
    samples: tuple[Sample, ...] = ()
    rules = NO_RULES
    try:
        rules = parse_rules(policy.get("rules", ()))
    except RuleErrors as refused:
        errors += refused.items
    try:
        samples = parse_samples(toml.values.get("samples", ()))
    except RuleErrors as refused:
        errors += refused.items
    if errors:
        told = [_place(toml, error) for error in errors]
        lines = "\n".join(f"  {line}" for line in told)
        raise InvalidArgument(
            told[0] if len(told) == 1 else f"{len(told)} things are wrong:\n{lines}"
        )
    if not samples:
        raise InvalidArgument(f"{file} has no [[samples]].", "Write one for each call to try.")
    if "rules" not in policy:
        rules = Rules(rules=load_settings(home).policy.rules)
    return samples, rules


_KNOWN = "it has [[policy.rules]] and [[samples]]"


def _place(toml: TomlFile, error: Any) -> str:
    return (
        f"{toml.path}, line {toml.nearest_line(error.path) or 1}: {error.dotted}: {error.message}"
    )


def _document(trial: Trial) -> dict[str, Any]:
    return {
        "name": trial.sample.name,
        "ok": trial.passed,
        "expect": trial.sample.expect,
        "expect_decided_by": trial.sample.decided_by,
        **trial.decision.model_dump(mode="json"),
    }


def _print_trials(trials: tuple[Trial, ...]) -> None:
    from rich.text import Text

    from gateway.cli.tables import columns, print_table
    from gateway.cli.words import plural, printable

    out = console()
    table = columns("", "sample", "hook", "expected", "decided", "by")
    for trial in trials:
        mark = Text("✓", "green") if trial.passed else Text("✗", "red")
        sample, decision = trial.sample, trial.decision
        expected = str(sample.expect)
        if sample.decided_by is not None and sample.decided_by != decision.decided_by:
            expected += f" by {sample.decided_by}"
        table.add_row(
            mark,
            printable(sample.name),
            decision.hook,
            printable(expected),
            decision.action,
            decision.decided_by,
        )
    print_table(out, table)
    failed = [trial for trial in trials if not trial.passed]
    for trial in failed:
        out.print()
        out.print(f"✗ {printable(trial.sample.name)}: {printable(trial.decision.reason)}")
        _print_rules(out, [rule.model_dump(mode="json") for rule in trial.decision.rules_evaluated])
    out.print(f"{plural(len(trials), 'sample')}, {len(failed)} decided otherwise", style="dim")


def _print_decision(out: Console, record: Record) -> None:
    from gateway.cli.tables import fields, print_table
    from gateway.cli.words import printable, shown_arguments

    turn = "" if record.turn is None else f", turn {record.turn}"
    step = "" if record.step is None else f", step {record.step}"
    label = str(record.label_after)
    if record.label_before != record.label_after:
        label = f"{record.label_before} → {record.label_after}"
    table = fields()
    for name, value in (
        ("decision", f"{record.decision} by {record.decided_by}"),
        ("reason", record.reason or "–"),
        ("at", f"{record.hook} in {record.session_key or 'no session'}{turn}{step}"),
        ("time", record.at),
        ("label", label),
        ("arguments", shown_arguments(record.arguments) or "–"),
    ):
        table.add_row(name, printable(str(value)).replace("\n", " "))
    print_table(out, table)
    if str(record.decided_by).startswith("invariant:"):
        out.print("An invariant: no rule and no approval changes it.")
    _print_rules(out, record.exported()["rules_evaluated"])


def _print_rules(out: Console, evaluated: Any) -> None:
    """The rules of a hook as they were evaluated; of an entry that was tampered with, anything."""
    from gateway.cli.tables import columns, print_table
    from gateway.cli.words import one_line, printable

    if evaluated in ([], ()):
        out.print("No rule of this hook was there.", style="dim")
        return
    table = columns("rule", "outcome", "field")
    for rule in evaluated if isinstance(evaluated, list) else [evaluated]:
        cells = rule if isinstance(rule, dict) else {"id": json.dumps(rule)}
        table.add_row(
            *(
                one_line(printable(str(cells.get(name, ""))), 120)
                for name in ("id", "outcome", "detail")
            )
        )
    print_table(out, table)
