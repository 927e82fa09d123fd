"""The connection to Temporal, for clients and workers alike.

Invariant: both sides speak through the same data converter, so what one writes the other reads.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import NoReturn

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import (
    AddSearchAttributesRequest,
    ListSearchAttributesRequest,
)
from temporalio.client import Client
from temporalio.envconfig import ClientConfig, ClientConnectConfig
from temporalio.runtime import Runtime
from temporalio.service import RPCError

from gateway.codec import data_converter
from gateway.local import find_stack
from perdure.config import Settings
from perdure.domain.errors import Unavailable
from perdure.domain.visibility import SEARCH_ATTRIBUTES


async def connect(settings: Settings, runtime: Runtime | None = None) -> Client:
    """A client for the configured cluster, or else for the stack that runs on this home; over
    `runtime`, else over the SDK's own.

    A configured cluster takes TLS, API key and the rest from Temporal's own environment
    (`TEMPORAL_*`, profiles); the stack of a home is local and takes nothing from there.

    Raises:
        Unavailable: when nothing runs there, saying how to start it.
        InvalidArgument: when an encryption key cannot be read.
    """
    options: ClientConnectConfig = {}
    address = settings.temporal.address
    if address is not None:
        options = ClientConfig.load_client_connect_config()
    else:
        stack = find_stack(settings.home)
        if stack is None:
            raise Unavailable(
                f"No Perdure runs on {settings.home}.",
                "Start it with `perdure up`, or set PERDURE_TEMPORAL_ADDRESS to a cluster.",
            )
        address = stack.temporal
    converter = data_converter(settings)
    options |= {"target_host": address, "namespace": settings.temporal.namespace}
    try:
        return await Client.connect(**options, data_converter=converter, runtime=runtime)
    except (RPCError, RuntimeError) as error:
        raise Unavailable(
            f"Temporal does not answer at {address}: {error}.",
            "Is the address right, and is the server up?",
        ) from error


def leave(code: int) -> NoReturn:
    """End the process with its output flushed.

    The SDK's threads sometimes abort an interpreter that is shutting down (PyGILState_Release),
    which would turn a good exit code into a crash.
    """
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


async def ensure_search_attributes(client: Client) -> None:
    """Register our search attributes where the cluster lets us; elsewhere an operator does.

    Raises:
        Unavailable: when they are missing and cannot be registered from here.
    """
    try:
        known = await client.operator_service.list_search_attributes(
            ListSearchAttributesRequest(namespace=client.namespace)
        )
        missing = [name for name in SEARCH_ATTRIBUTES if name not in known.custom_attributes]
        if missing:
            keyword = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
            await client.operator_service.add_search_attributes(
                AddSearchAttributesRequest(
                    namespace=client.namespace,
                    search_attributes=dict.fromkeys(missing, keyword),
                )
            )
    except RPCError as error:
        raise Unavailable(
            f"The search attributes {', '.join(SEARCH_ATTRIBUTES)} cannot be checked: {error}.",
            "Register them as Keyword on the namespace "
            "(`temporal operator search-attribute create`).",
        ) from error
