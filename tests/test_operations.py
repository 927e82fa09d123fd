"""The alerts that are documented are about metrics that there are, with labels that they have."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from gateway.local.commands import worker_ports
from perdure.config.observability import ObservabilitySettings
from perdure.telemetry.metrics import REGISTRY

ROOT = Path(__file__).parent.parent
RULES = ROOT / "docker" / "prometheus" / "rules.yml"
GUIDE = ROOT / "docs" / "operations.md"
_METRIC = re.compile(r"\bperdure_[a-z_]+(?:\{[^}]*\})?")
_SUFFIX = re.compile(r"_(bucket|count|sum|total)$")


def known() -> dict[str, tuple[str, ...]]:
    """The labels of each metric, by its name without the suffix of its kind."""
    found = {}
    for metric in list(REGISTRY._collector_to_names):
        found[_SUFFIX.sub("", metric._name)] = metric._labelnames  # type: ignore[attr-defined]
    return found


def rules() -> Iterator[dict[str, object]]:
    """The rules of the file."""
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        yield from group["rules"]


@pytest.mark.parametrize("rule", list(rules()), ids=lambda rule: rule["alert"])
def test_an_alert_is_about_metrics_that_there_are(rule: dict[str, str]) -> None:
    metrics = _METRIC.findall(rule["expr"])
    assert metrics
    for written in metrics:
        name, _, selected = written.rstrip("}").partition("{")
        labels = known()[_SUFFIX.sub("", name)]
        asked = set(re.findall(r"(\w+)\s*[=!]", selected)) - {"le"}
        assert asked <= set(labels), written
    by = {
        label
        for found in re.findall(r"by \(([^)]*)\)", rule["expr"])
        for label in found.split(", ")
    }
    told = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))  # type: ignore[index]
    assert told <= by


def test_no_two_workers_of_a_stack_serve_their_metrics_at_one_port() -> None:
    settings = ObservabilitySettings(metrics_port=9464, temporal_metrics_port=9564)
    ports = [port for number in (1, 2, 3) for port in worker_ports(settings, number).values()]
    assert sorted(ports) == ["9464", "9465", "9466", "9564", "9565", "9566"]
    assert worker_ports(ObservabilitySettings(), 2) == {}


def test_the_guide_tells_of_every_metric_and_of_every_alert() -> None:
    guide = GUIDE.read_text("utf-8")
    told = {_SUFFIX.sub("", name) for name in _METRIC.findall(guide)}
    assert set(known()) <= told
    assert told <= set(known())
    assert [rule["alert"] for rule in rules() if f"`{rule['alert']}`" not in guide] == []
