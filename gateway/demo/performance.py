"""One whole demo: the stack, the story on it, the evidence, the verdict.

Invariant: whatever happens, everything that was started is stopped, and the verdict is made of what
was found after the story, however the story ended.
"""

from __future__ import annotations

import asyncio
import time

from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter

from gateway.client import SessionClient
from gateway.demo.checks import examine
from gateway.demo.crew import Narrator
from gateway.demo.director import Director
from gateway.demo.lives import Life, lives
from gateway.demo.stage import models_of
from gateway.demo.verdict import Check
from gateway.local import Stack
from perdure.config import Settings
from perdure.domain.messages import Frozen

#: Seconds that processes get to hand over when a person stops the demo.
_GRACE = 1.0


class Report(Frozen):
    """What came of a demo.

    `problem` is why the story did not come to its end; `left_out` is what a real model gave no
    occasion for. `report` is what the lead wrote, made of what its `runs` found.
    """

    home: str
    models: tuple[str, ...]
    ui: str
    seconds: float
    problem: str | None
    left_out: tuple[str, ...]
    runs: tuple[Life, ...]
    report: str
    checks: tuple[Check, ...]

    @property
    def held(self) -> bool:
        """Whether the story came to its end and every promise was held."""
        return self.problem is None and all(check.held for check in self.checks)


async def perform(settings: Settings, narrator: Narrator) -> Report:
    """Run the demo on a home that `stage.set_up` has furnished.

    Raises:
        PerdureError: when the stack does not start, or nothing could be gathered.
    """
    started = time.monotonic()
    _be_quiet()
    stack = Stack(settings, tell=lambda text: _pass_on(text, narrator))
    try:
        await stack.start()
        info = stack.info
        narrator.ready(info)
        async with SessionClient.connect(settings) as client:
            director = Director(settings, stack, client, narrator)
            problem = await director.direct()
            evidence = await director.gather()
        await stack.stop()
    except asyncio.CancelledError:
        await _stop_at_once(stack)
        raise
    finally:
        await stack.stop()
    return Report(
        home=str(settings.home),
        models=models_of(settings),
        ui=str(info.ui),
        seconds=round(time.monotonic() - started, 1),
        problem=problem,
        left_out=tuple(director.left_out),
        runs=lives(evidence),
        report=evidence.delegation.report,
        checks=examine(evidence),
    )


def _be_quiet() -> None:
    """Leave out Temporal's warnings of calls that are tried again: its server is killed here."""
    quiet = TelemetryFilter(core_level="ERROR", other_level="ERROR")
    Runtime.set_default(
        Runtime(telemetry=TelemetryConfig(logging=LoggingConfig(filter=quiet))),
        error_if_already_set=False,
    )


def _pass_on(text: str, narrator: Narrator) -> None:
    # A process that ends three times in a row is shown with its log; here that is no news.
    if "\n" not in text:
        narrator.note(text)


async def _stop_at_once(stack: Stack) -> None:
    """Stop without waiting for what is under way: to be cut is what it is there for."""
    stopping = asyncio.create_task(stack.stop())
    await asyncio.wait({stopping}, timeout=_GRACE)
    stack.kill()
    await stopping
