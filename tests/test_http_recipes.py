"""The recipes of docs/gateways.md do what the page says."""

from __future__ import annotations

import asyncio
import json
import os
import re
from pathlib import Path

from tests.support.gateway import running_gateway
from tests.support.stack import ROOT, Stack

_RECIPE = re.compile(r"<!-- run: http -->\n```sh\n(.*?)```", re.DOTALL)


async def test_the_recipes_with_curl_work_as_they_stand(stack: Stack, tmp_path: Path) -> None:
    (recipe,) = _RECIPE.findall((ROOT / "docs" / "gateways.md").read_text("utf-8"))
    async with running_gateway(stack, "recipes") as gateway:
        process = await asyncio.create_subprocess_exec(
            *("bash", "-euo", "pipefail", "-c", recipe),
            env=os.environ | {"GATEWAY": gateway.url},
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
    told = output.decode()
    assert process.returncode == 0, told
    assert told.count('"text":"Hello."') >= 2
    exported = [json.loads(line) for line in (tmp_path / "memory.jsonl").read_text().splitlines()]
    assert [entry["path"] for entry in exported] == ["memory/team/deploys"]
