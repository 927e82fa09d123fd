"""`perdure memory`: looked at, stored, pinned, forgotten, carried elsewhere, from a shell."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from gateway.cli import run


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "home"
    place.mkdir()
    monkeypatch.setenv("PERDURE_HOME", str(place))
    monkeypatch.setenv("PERDURE_MEMORY_EMBEDDER", "hashing")
    return place


def memory(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    capsys.readouterr()
    assert run(["memory", *words]) == code
    return capsys.readouterr().out


def told(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    return json.loads(memory(capsys, *words, "--json", code=code))


def store(capsys: pytest.CaptureFixture[str], text: str, *more: str) -> str:
    return str(told(capsys, "store", text, *more)["id"])


def test_what_is_stored_is_found_shown_and_forgotten(capsys: pytest.CaptureFixture[str]) -> None:
    first = store(capsys, "The party is on the roof.", "--tag", "party", "--key", "events/roof")
    second = store(capsys, "Bring a coat.")
    found = told(capsys, "search", "where", "is", "the", "party")
    assert found["results"][0]["id"] == first
    assert told(capsys, "search", "--tag", "party", "coat")["total"] == 1
    assert "memory/events/roof" in memory(capsys, "search", "roof")
    shown = told(capsys, "get", "memory/events/roof")
    assert (shown["content"], shown["trust"], shown["origin"]) == (
        "The party is on the roof.",
        "system",
        "person",
    )
    assert "The party is on the roof." in memory(capsys, "get", first)
    assert told(capsys, "delete", first, "mem_none", "--yes") == {"deleted": [first], "asked": 2}
    assert [entry["id"] for entry in told(capsys, "browse")["entries"]] == [second]
    assert told(capsys, "get", first, code=3)["error"]["code"] == "not_found"


def test_a_secret_is_denied(capsys: pytest.CaptureFixture[str]) -> None:
    refused = told(capsys, "store", "password: hunter2xyz!", code=4)["error"]
    assert refused["code"] == "denied"
    assert "in content, line 1" in refused["message"]
    assert told(capsys, "stats")["entries"] == 0


def test_pins_and_figures(capsys: pytest.CaptureFixture[str]) -> None:
    public = store(capsys, "Always in view.")
    secret = store(capsys, "Also in view.", "--label", "CONFIDENTIAL")
    assert set(told(capsys, "pin", public, secret)["pinned"]) == {public, secret}
    stats = told(capsys, "stats")
    assert (stats["entries"], stats["pinned"]) == (2, 2)
    assert stats["by_label"] == {"PUBLIC": 1, "CONFIDENTIAL": 1}
    assert told(capsys, "unpin", public)["unpinned"] == [public]
    assert "pinned" in memory(capsys, "stats")
    assert told(capsys, "store", "x", "--label", "RESTRICTED", code=4)["error"]["code"] == "denied"


def test_an_export_is_imported_whole_and_twice_changes_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(capsys, "The port is 80.", "--key", "port", "--tag", "a")
    store(capsys, "The port is 443.", "--key", "port", "--pin", "--label", "INTERNAL")
    store(capsys, "The port is 8443.", "--key", "port")
    file = tmp_path / "memory.jsonl"
    memory(capsys, "export", "--out", str(file))
    before = told(capsys, "browse", "--limit", "100")["entries"]
    assert told(capsys, "import", str(file)) == {"stored": 0, "known": 3, "refused": []}
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "elsewhere"))
    (tmp_path / "elsewhere").mkdir()
    assert told(capsys, "import", str(file)) == {"stored": 3, "known": 0, "refused": []}
    assert told(capsys, "browse", "--limit", "100")["entries"] == before
    lines = memory(capsys, "export")
    assert sorted(lines.splitlines()) == sorted(file.read_text().splitlines())


def test_a_line_that_cannot_be_imported_is_told_and_the_others_are_stored(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store(capsys, "A good one.")
    good = memory(capsys, "export").strip()
    secret = json.dumps({**json.loads(good), "content": "password: hunter2xyz!"})
    lines = "\n".join(["no json", good, "", '{"id": 1}', secret])
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    done = told(capsys, "import", "-", "--tenant", "other", code=1)
    assert (done["stored"], [one["line"] for one in done["refused"]]) == (1, [1, 4, 5])
    assert told(capsys, "stats", "--tenant", "other")["entries"] == 1


def test_flush_forgets_what_the_filters_match(capsys: pytest.CaptureFixture[str]) -> None:
    store(capsys, "One.", "--tag", "old")
    store(capsys, "Two.", "--tag", "old", "--type", "episodic")
    kept = store(capsys, "Three.")
    assert len(told(capsys, "flush", "--tag", "old", "--yes")["deleted"]) == 2
    assert [one["id"] for one in told(capsys, "browse")["entries"]] == [kept]


def test_another_embedder_is_told_and_embedded_anew_here(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store(capsys, "The heron stands in the pond.")
    monkeypatch.setenv("PERDURE_MEMORY_EMBEDDER", "nobody:model")
    stats = told(capsys, "stats")
    assert (stats["embedder"], stats["not_embedded"]) == ("nobody:model", 1)
    assert len(told(capsys, "search", "heron")["results"]) == 1
    assert told(capsys, "reindex", "--here", code=5)["error"]["code"] == "unavailable"
    monkeypatch.setenv("PERDURE_MEMORY_EMBEDDER", "hashing")
    assert told(capsys, "reindex", "--here") == {"done": 1, "total": 1}


def test_wrong_settings_are_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_MEMORY_URI", "relative/place")
    refused = told(capsys, "stats", code=2)["error"]
    assert "must be an absolute path, or begin with one of s3://" in refused["message"]
