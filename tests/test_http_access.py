"""Every route says who may use it, and nothing is told to anyone else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fastapi import FastAPI

from gateway.client import SessionClient
from gateway.http.access import routes, scopes_of
from gateway.http.app import create_app
from perdure.config import Settings


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[FastAPI]:
    async with SessionClient.connect(Settings(home=tmp_path), reading=True) as client:
        yield create_app(client, hosts={"localhost"}, stopping=asyncio.Event())


async def test_every_route_says_which_scope_it_needs_or_that_it_is_open(app: FastAPI) -> None:
    known = list(routes(app))
    assert {"/healthz", "/v1/sessions"} <= {route.path for route in known}
    assert [route.path for route in known if scopes_of(route) is None] == []
    document = app.openapi()
    for route in known:
        for method in route.methods or ():
            operation = document["paths"][route.path_format][method.lower()]
            assert ("security" in operation) == bool(scopes_of(route)), route.path
