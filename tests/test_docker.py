"""The image and the compose file hold together, as far as that shows without a Docker engine.

Promise: what the compose file starts is there, in this order, with settings that Perdure knows; and
what the image copies is all that a worker and a gateway need.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from perdure.config import load_settings
from tests.support.stack import ROOT

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
            there = (DOCKER / source).exists() if source.startswith(".") else True
            assert there and (source.startswith(".") or source in compose["volumes"]), mount


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


def copied() -> Iterator[Path]:
    """What `docker build` would find in its context and copy into the image."""
    allowed = [
        line[1:]
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    ]
    for line in (DOCKER / "Dockerfile").read_text().splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            for source in line.split()[1:-1]:
                assert any(fnmatch(source, one) for one in allowed), f"{source} is ignored"
                yield ROOT / source
