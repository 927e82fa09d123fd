"""A worker with one workflow, for tests of the stack that need none of Perdure's own."""

from __future__ import annotations

import asyncio
import os
import signal

from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker


@workflow.defn
class Echo:
    @workflow.run
    async def run(self, word: str) -> str:
        return word


async def main() -> None:
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    client = await Client.connect(
        os.environ["PERDURE_TEMPORAL_ADDRESS"], namespace=os.environ["PERDURE_TEMPORAL_NAMESPACE"]
    )
    async with Worker(
        client,
        task_queue=os.environ["PERDURE_TEMPORAL_QUEUE"],
        workflows=[Echo],
        workflow_runner=UnsandboxedWorkflowRunner(),
    ):
        print("polling", flush=True)
        await stopping.wait()


if __name__ == "__main__":
    asyncio.run(main())
