"""The comparison: the least a workflow can do for a turn, with nothing around it.

A bare turn is one blocking update that waits for its activities; no store, no transcript, no
outbox. Run as `python -m bench.bare ADDRESS` it is the worker process of the comparison.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

QUEUE = "bare"


@activity.defn
async def answer(text: str) -> str:
    """One activity: the model, the tool, whatever stands for it."""
    return text


@workflow.defn
class Bare:
    """A conversation without anything that makes it last."""

    @workflow.run
    async def run(self) -> None:
        """Wait for ever."""
        await workflow.wait_condition(lambda: False)

    @workflow.update
    async def turn(self, activities: int) -> str:
        """Run so many activities, one after the other, and return the last one's result."""
        result = ""
        for _ in range(activities):
            result = await workflow.execute_activity(
                answer, "hello", start_to_close_timeout=timedelta(seconds=30)
            )
        return result


async def work(address: str) -> None:
    """Work until killed."""
    client = await Client.connect(address, data_converter=pydantic_data_converter)
    runner = SandboxedWorkflowRunner(
        restrictions=SandboxRestrictions.default.with_passthrough_modules("bench", "pydantic")
    )
    async with Worker(
        client, task_queue=QUEUE, workflows=[Bare], activities=[answer], workflow_runner=runner
    ):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1]))
