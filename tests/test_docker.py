"""The image and the compose file hold together, as far as that shows without a Docker engine.

Promise: what the compose file starts is there, in this order, with settings that Perdure knows; and
what the image copies is all that a worker and a gateway need.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from pathlib import Path
from subprocess import DEVNULL
from typing import Any

import httpx2
import pytest
import yaml

from gateway.local.ports import free_ports
from perdure.config import load_settings
from tests.support.postgres import Cluster
from tests.support.stack import ROOT, fresh_key, until

DOCKER = ROOT / "docker"
#: As someone would set them who copies .env.example.
ENVIRON = {
    "POSTGRES_PASSWORD": "root0",
    "PERDURE_DB_PASSWORD": "ours0",
    "TEMPORAL_DB_PASSWORD": "theirs0",
}
_VARIABLE = re.compile(r"\$\{(\w+)(?:(:-|:\?)((?:[^{}]|\{[^{}]*\})*))?\}")


def interpolated(text: str, environ: dict[str, str]) -> str:
    """`${NAME}`, `${NAME:-default}` and `${NAME:?message}` as compose replaces them."""

    def value(match: re.Match[str]) -> str:
        name, operator, rest = match.groups()
        if environ.get(name):
            return environ[name]
        assert operator != ":?", f"{name} is not set: {rest}"
        return rest or ""

    return _VARIABLE.sub(value, text)


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """The compose file, its variables replaced as if .env.example were filled in."""
    text = (DOCKER / "compose.yaml").read_text()
    return dict(yaml.safe_load(interpolated(text, ENVIRON)))


def test_every_service_of_the_compose_file_waits_for_services_that_are_there(
    compose: dict[str, Any],
) -> None:
    services = compose["services"]
    for name, service in services.items():
        assert "image" in service, name
        for other, how in service.get("depends_on", {}).items():
            condition = how["condition"]
            assert condition in {"service_healthy", "service_completed_successfully"}
            if condition == "service_healthy":
                assert "healthcheck" in services[other], f"{name} waits for {other} to be healthy"
        for mount in service.get("volumes", ()):
            source = mount.split(":")[0]
            ours = source.startswith(".")
            assert (DOCKER / source).exists() if ours else source in compose["volumes"], mount


def test_every_password_must_be_given(compose: dict[str, Any]) -> None:
    text = (DOCKER / "compose.yaml").read_text()
    for name in ENVIRON:
        with pytest.raises(AssertionError, match=name):
            interpolated(text, {**ENVIRON, name: ""})
        assert f"\n{name}=\n" in "\n" + (DOCKER / ".env.example").read_text()


def test_what_the_example_environment_names_is_used(compose: dict[str, Any]) -> None:
    text = (DOCKER / "compose.yaml").read_text()
    used = {match[1] for match in _VARIABLE.finditer(text)}
    told = set(re.findall(r"^#?([A-Z_]+)=", (DOCKER / ".env.example").read_text(), re.M))
    assert told <= used


@pytest.mark.parametrize("name", ["worker", "gateway"])
def test_perdure_knows_every_setting_that_the_compose_file_gives(
    name: str, compose: dict[str, Any], tmp_path: Path
) -> None:
    environ = {key: str(value) for key, value in compose["services"][name]["environment"].items()}
    settings = load_settings(tmp_path, environ)
    assert settings.store_url.startswith("postgresql://perdure:ours0@postgresql:5432/")
    assert settings.temporal.address == "temporal:7233"


def test_nothing_is_open_to_other_machines_unless_it_is_told_to(compose: dict[str, Any]) -> None:
    published = [port for one in compose["services"].values() for port in one.get("ports", ())]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_the_image_is_no_root_and_runs_perdure() -> None:
    lines = (DOCKER / "Dockerfile").read_text().splitlines()
    last = lines[max(n for n, line in enumerate(lines) if line.startswith("FROM ")) :]
    assert "USER perdure" in last
    assert 'ENTRYPOINT ["perdure"]' in last
    assert not any(line.startswith("COPY .") for line in lines)


def test_docker_itself_finds_the_compose_file_valid() -> None:
    docker = shutil.which("docker")
    known = docker and subprocess.run([docker, "compose", "version"], capture_output=True)
    if not known or known.returncode:
        pytest.skip("there is no `docker compose` here; the file was read by the tests above")
    checked = subprocess.run(
        [str(docker), "compose", "--file", str(DOCKER / "compose.yaml"), "config", "--quiet"],
        env=ENVIRON,
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stderr


class Container:
    """A service of the compose file as a process: its command and its settings, in a folder that
    has nothing of the checkout."""

    def __init__(self, image: Path, service: dict[str, Any], name: str, **changed: str) -> None:
        self.environ = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(image / "site"),
            **{key: str(value) for key, value in service["environment"].items()},
            **changed,
        }
        self._argv = (str(image / "site" / "bin" / "perdure"), *service["command"])
        self._folder = image / "empty"
        self.log = image / f"{name}.log"
        self.process: subprocess.Popen[bytes]

    def __enter__(self) -> Container:
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                self._argv, cwd=self._folder, env=self.environ, stdout=log, stderr=log
            )
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.process.kill()
        self.process.wait()

    def run(self, *arguments: str) -> str:
        """What `docker compose run SERVICE ARGUMENTS` prints."""
        return subprocess.run(
            [self._argv[0], *arguments],
            cwd=self._folder,
            env=self.environ,
            check=True,
            capture_output=True,
            text=True,
        ).stdout


def copied() -> Iterator[str]:
    """What `docker build` finds in its context and copies into the image."""
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    allowed = {line[1:] for line in ignored if line.startswith("!")}
    for line in (DOCKER / "Dockerfile").read_text().splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            for source in line.split()[1:-1]:
                assert source in allowed, f"{source} is ignored"
                yield source


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the image: what the Dockerfile copies, installed as it installs them. What they
    depend on is there already."""
    folder = tmp_path_factory.mktemp("image")
    for source in copied():
        if (ROOT / source).is_dir():
            no_cache = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / source, folder / "src" / source, ignore=no_cache)
        else:
            (folder / "src").mkdir(exist_ok=True)
            shutil.copy(ROOT / source, folder / "src" / source)
    target = ("--target", str(folder / "site"), str(folder / "src"))
    install = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps")
    subprocess.run([*install, *target], check=True, cwd=folder)
    shutil.rmtree(folder / "src")
    (folder / "empty").mkdir()
    return folder


async def test_two_workers_and_two_gateways_on_postgresql_answer_when_one_of_each_dies(
    image: Path, compose: dict[str, Any], cluster: Cluster, temporal_address: str
) -> None:
    changed = {
        "PERDURE_HOME": str(image / "home"),
        "PERDURE_STORE_URL": await cluster.fresh(migrated=False),
        "PERDURE_TEMPORAL_ADDRESS": temporal_address,
        "PERDURE_TEMPORAL_NAMESPACE": "default",
        "PERDURE_TEMPORAL_QUEUE": fresh_key("docker"),
    }
    worker, gateway = (compose["services"][name] for name in ("worker", "gateway"))
    ports = free_ports(2)
    with ExitStack() as containers:
        workers = [
            containers.enter_context(
                Container(
                    image,
                    worker,
                    f"worker{port}",
                    PERDURE_OBSERVABILITY_METRICS_PORT=str(port),
                    PERDURE_OBSERVABILITY_METRICS_HOST="127.0.0.1",
                    **changed,
                )
            )
            for port in free_ports(2)
        ]
        own = {"PERDURE_GATEWAY_HOST": "127.0.0.1"}
        gateways = [
            Container(
                image, gateway, f"gateway{port}", PERDURE_GATEWAY_PORT=str(port), **own, **changed
            )
            for port in ports
        ]
        made = gateways[0].run(
            "keys", "create", "me", "--scope", "chat", "--scope", "read", "--json"
        )
        for one in gateways:
            containers.enter_context(one)
        async with AsyncExitStack() as stack:
            first, second = [
                await stack.enter_async_context(
                    httpx2.AsyncClient(
                        base_url=f"http://localhost:{port}/v1",
                        headers={"Authorization": f"Bearer {json.loads(made)['text']}"},
                        timeout=120,
                    )
                )
                for port in ports
            ]
            for client, one in zip((first, second), gateways, strict=True):
                await until(partial(_is_up, client, one))
            keys = [fresh_key(f"container{number}") for number in range(6)]
            tickets = []
            for key in keys:
                sent = await first.post(
                    f"/sessions/{key}/messages", json={"text": f"/sleep 1\n/say {key} is answered"}
                )
                assert sent.status_code == 202, sent.text
                tickets.append(sent.json()["message_id"])
            for one in workers:
                await until(partial(_is_healthy, worker, one))
            workers[0].kill()
            gateways[0].kill()
            for key, message_id in zip(keys, tickets, strict=True):
                answer = await second.get(
                    f"/sessions/{key}/turns/{message_id}", params={"timeout": 90}
                )
                assert answer.json()["text"] == f"{key} is answered", answer.text
                said = (await second.get(f"/sessions/{key}/messages")).json()["messages"]
                assert [one["role"] for one in said] == ["user", "assistant"]
            stranger = await second.get("/sessions", headers={"Authorization": ""})
            assert stranger.status_code == 401


async def _is_healthy(service: dict[str, Any], one: Container) -> bool:
    """Whether its own health check finds it well, at the port that it has here."""
    assert one.process.poll() is None, one.log.read_text()
    _, _, *argv = service["healthcheck"]["test"]
    port = one.environ["PERDURE_OBSERVABILITY_METRICS_PORT"]
    code = argv[-1].replace("9464", port)
    checked = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stderr=DEVNULL)
    return await checked.wait() == 0


async def _is_up(client: httpx2.AsyncClient, one: Container) -> bool:
    assert one.process.poll() is None, one.log.read_text()
    try:
        return (
            await client.get("http://localhost:" + str(client.base_url.port) + "/readyz")
        ).is_success
    except httpx2.TransportError:
        return False
