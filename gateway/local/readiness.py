"""Is it ready? Asked of the thing itself, never guessed from its log.

Invariant: every check is bounded, and a check that cannot be made is a no.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.envconfig import ClientConfig
from temporalio.service import RPCError

from perdure.domain.visibility import SEARCH_ATTRIBUTES

#: Seconds for one question; a healthy server answers in milliseconds.
_PATIENCE = 3.0
#: Seconds between two questions.
_PAUSE = 0.05


async def until(ready: Callable[[], Awaitable[bool]]) -> None:
    """Ask until the answer is yes. Bound it with `asyncio.timeout`."""
    while True:
        if await ready():
            return
        await asyncio.sleep(_PAUSE)


async def dial(address: str, namespace: str, *, profile: bool) -> Client | None:
    """A client, or None when nothing answers.

    Args:
        address: `host:port`.
        namespace: the namespace to speak of; it need not exist.
        profile: whether TLS, API key and the like come from Temporal's environment. They are
            meant for a cluster elsewhere; the local server knows none of them.
    """
    config = ClientConfig.load_client_connect_config() if profile else {}
    config |= {"target_host": address, "namespace": namespace}
    try:
        return await asyncio.wait_for(Client.connect(**config), _PATIENCE)
    except (RPCError, RuntimeError, TimeoutError):
        return None


async def server_serves(address: str, namespace: str) -> bool:
    """Whether the local server at `address` has the namespace and our search attributes."""
    client = await dial(address, namespace, profile=False)
    if client is None:
        return False
    # One question needs them all: the frontend, the namespace, the visibility store, the names.
    query = " OR ".join(f"{name} = 'none'" for name in SEARCH_ATTRIBUTES)
    try:
        await asyncio.wait_for(client.count_workflows(query), _PATIENCE)
    except (RPCError, TimeoutError):
        return False
    return True


async def worker_polls(client: Client, queue: str, pid: int) -> bool:
    """Whether the process `pid` of this machine polls `queue` for workflow tasks.

    It is known by the identity that the SDK gives to a worker unless told otherwise.
    """
    request = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=queue),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    )
    try:
        answer = await asyncio.wait_for(
            client.workflow_service.describe_task_queue(request), _PATIENCE
        )
    except (RPCError, TimeoutError):
        return False
    identity = f"{pid}@{socket.gethostname()}"
    return any(poller.identity == identity for poller in answer.pollers)


async def accepts(host: str, port: int) -> bool:
    """Whether something accepts TCP connections there."""
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(host, port), _PATIENCE)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True
