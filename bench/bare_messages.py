"""The comparison for messages: two workflows that signal each other, with nothing around it.

No store, no transcript, no model, no label, no check. Run as `python -m bench.bare_messages
ADDRESS` it is the worker process of the comparison.
"""

from __future__ import annotations

import asyncio
import sys

from temporalio import workflow
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

QUEUE = "bare-messages"


@workflow.defn
class Talker:
    """Signals another workflow, and answers its signals."""

    def __init__(self) -> None:
        self._heard = 0
        self._asked: list[str] = []

    @workflow.run
    async def run(self) -> None:
        """Answer whoever asks, for ever."""
        while True:
            await workflow.wait_condition(lambda: bool(self._asked))
            await self._signal(self._asked.pop(0), "")

    @workflow.signal
    def hear(self, answer_to: str) -> None:
        """Hear a word, and answer it if it says to whom."""
        self._heard += 1
        if answer_to:
            self._asked.append(answer_to)

    @workflow.update
    async def send(self, target: str, count: int) -> None:
        """Signal another one `count` times."""
        await asyncio.gather(*(self._signal(target, "") for _ in range(count)))

    @workflow.update
    async def ask(self, target: str) -> None:
        """Signal another one and wait for its signal back."""
        before = self._heard
        await self._signal(target, workflow.info().workflow_id)
        await workflow.wait_condition(lambda: self._heard > before)

    async def _signal(self, target: str, answer_to: str) -> None:
        await workflow.get_external_workflow_handle(target).signal(Talker.hear, answer_to)


async def work(address: str) -> None:
    """Work until killed."""
    client = await Client.connect(address, data_converter=pydantic_data_converter)
    runner = SandboxedWorkflowRunner(
        restrictions=SandboxRestrictions.default.with_passthrough_modules("bench", "pydantic")
    )
    async with Worker(client, task_queue=QUEUE, workflows=[Talker], workflow_runner=runner):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1]))
