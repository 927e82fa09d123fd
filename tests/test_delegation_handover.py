"""What a parent hands to a child: files that are checked before and copied after, and a brief."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from perdure.context import estimate_tokens
from perdure.delegation import artifacts, outputs
from perdure.delegation.packet import (
    SUMMARY_TOKENS,
    Announcement,
    SpawnPacket,
    brief,
    summary_within,
)
from perdure.domain.errors import Conflict, InvalidArgument, LimitExceeded
from perdure.domain.ids import new_run_id
from perdure.domain.keys import Kind, SessionKey
from perdure.domain.labels import Label
from perdure.domain.runs import EndReason, RunState, RunStatus, status_of
from perdure.workspace import Workspace

PUBLIC: dict[str, Label] = {}


def level(path: str) -> Label:
    return PUBLIC.get(path, Label.PUBLIC)


@pytest.fixture
def parent(tmp_path: Path) -> Workspace:
    space = Workspace(tmp_path / "parent", file_bytes=10_000)
    space.write("notes/plan.md", "the plan\n")
    space.write("b.txt", "b")
    return space


@pytest.fixture
def child(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "child", file_bytes=10_000)


@pytest.fixture
def traps(parent: Workspace, tmp_path: Path) -> dict[str, str]:
    """Refs that must not be handed over, and a word of why."""
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    (parent.root / "out").symlink_to(secret)
    (parent.root / "up").symlink_to("../secret.txt")
    (parent.root / "folder-out").symlink_to(tmp_path)
    (parent.root / "loop").symlink_to("loop")
    (parent.root / "dangling").symlink_to("nowhere")
    os.mkfifo(parent.root / "pipe")
    (parent.root / "large").write_bytes(b"x" * 10_001)
    return {
        "../../etc/passwd": "leaves the workspace",
        "notes/../../secret.txt": "leaves the workspace",
        "/etc/passwd": "is absolute",
        "out": "by the symbolic link",
        "up": "leaves the workspace",
        "folder-out/secret.txt": "leaves the workspace",
        "loop": "loop of symbolic links",
        "dangling": "There is no",
        "notes": "is a folder",
        ".": "is a folder",
        "": "is a folder",
        "missing.md": "There is no",
        "b.txt/c": "not a folder",
        "pipe": "a pipe",
        "large": "limit file_bytes is 10000",
        "nul\0": "NUL",
        "\ud800": "surrogate",
        "n" * 300: "limits",
    }


def test_every_ref_that_is_no_file_of_the_workspace_is_refused_by_name(
    parent: Workspace, traps: dict[str, str]
) -> None:
    for ref, why in traps.items():
        with pytest.raises(InvalidArgument) as refused:
            artifacts.manifest(parent, ["b.txt", ref], level)
        assert refused.value.message.startswith("Nothing was spawned.")
        assert why in refused.value.message
        assert ref[:100].encode("unicode_escape").decode() in refused.value.message
        assert "b.txt" not in refused.value.message or "b.txt" in ref


def test_all_bad_refs_are_named_in_one_refusal(parent: Workspace, traps: dict[str, str]) -> None:
    with pytest.raises(InvalidArgument) as refused:
        artifacts.manifest(parent, list(traps), level)
    for ref in list(traps)[:10]:
        assert repr(ref) in refused.value.message
    assert f"and {len(traps) - 10} more" in refused.value.message


def test_a_device_is_refused(parent: Workspace) -> None:
    """Through a link, since a test may not make a device."""
    (parent.root / "null").symlink_to("/dev/null")
    with pytest.raises(InvalidArgument, match="'null'"):
        artifacts.manifest(parent, ["null"], level)


def test_too_many_and_too_much_are_refused_with_the_numbers(parent: Workspace) -> None:
    with pytest.raises(LimitExceeded, match=r"101 artifact_refs .* limit is 100"):
        artifacts.manifest(parent, ["b.txt"] * 101, level)
    with pytest.raises(LimitExceeded, match=r"10 bytes together; the limit is 9"):
        artifacts.manifest(parent, ["b.txt", "notes/plan.md"], level, most_bytes=9)


def test_a_manifest_holds_path_size_digest_and_level(parent: Workspace) -> None:
    (parent.root / "latest").symlink_to("notes/plan.md")
    PUBLIC["notes/plan.md"] = Label.CONFIDENTIAL
    try:
        found = artifacts.manifest(
            parent, ["./b.txt", "b.txt", "notes//plan.md", "latest", "notes/../b.txt"], level
        )
    finally:
        PUBLIC.clear()
    digest = hashlib.sha256(b"the plan\n").hexdigest()
    assert [(one.path, one.size, one.label) for one in found] == [
        ("b.txt", 1, Label.PUBLIC),
        ("notes/plan.md", 9, Label.CONFIDENTIAL),
        # Under its own name, with the level of where the link leads.
        ("latest", 9, Label.CONFIDENTIAL),
    ]
    assert {one.sha256 for one in found[1:]} == {digest}
    assert artifacts.levels(found) == {
        "notes/plan.md": Label.CONFIDENTIAL,
        "latest": Label.CONFIDENTIAL,
    }


def test_files_are_copied_byte_for_byte_and_again_without_their_origin(
    parent: Workspace, child: Workspace
) -> None:
    data = bytes(range(256)) * 8
    (parent.root / "image.png").write_bytes(data)
    found = artifacts.manifest(parent, ["image.png", "notes/plan.md"], level)
    artifacts.copy(parent, child, found)
    assert (child.root / "image.png").read_bytes() == data
    assert child.read("notes/plan.md").content == "the plan\n"
    (parent.root / "image.png").unlink()
    artifacts.copy(parent, child, found)
    assert not list(child.root.rglob("*.tmp"))


def test_a_file_that_changed_since_the_spawn_is_a_conflict(
    parent: Workspace, child: Workspace
) -> None:
    found = artifacts.manifest(parent, ["b.txt"], level)
    parent.write("b.txt", "c")
    with pytest.raises(Conflict, match=r"'b\.txt' has changed since the spawn"):
        artifacts.copy(parent, child, found)
    assert not child.root.exists() or not any(child.root.iterdir())


def test_a_run_that_takes_anothers_place_finds_its_files_though_the_parent_changed_them(
    parent: Workspace, child: Workspace, tmp_path: Path
) -> None:
    found = artifacts.manifest(parent, ["b.txt", "notes/plan.md"], level)
    artifacts.copy(parent, child, found)
    parent.write("b.txt", "c")
    child.write("notes/plan.md", "done\n")
    successor = Workspace(tmp_path / "successor")
    artifacts.copy(parent, successor, found, otherwise=child)
    assert successor.read("b.txt").content == "b"
    assert successor.read("notes/plan.md").content == "the plan\n"
    parent.write("notes/plan.md", "another")
    with pytest.raises(Conflict, match="has changed since"):
        artifacts.copy(parent, Workspace(tmp_path / "another"), found, otherwise=child)


def test_a_file_exchanged_for_a_link_after_the_check_is_not_followed_out(
    parent: Workspace, child: Workspace, tmp_path: Path
) -> None:
    found = artifacts.manifest(parent, ["b.txt"], level)
    (tmp_path / "secret.txt").write_text("b")
    (parent.root / "b.txt").unlink()
    (parent.root / "b.txt").symlink_to(tmp_path / "secret.txt")
    with pytest.raises(Exception, match="leaves the workspace"):
        artifacts.copy(parent, child, found)


# Expected outputs --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/etc/passwd", "not relative"),
        ("~/x.md", "not relative"),
        ("../x.md", "leads out"),
        ("a/../../x.md", "leads out"),
        ("reports/*.md", "patterns"),
        ("reports/", "a folder"),
        ("", "a folder"),
        ("a\nb.md", "line ends"),
        ("a\x1bb.md", "cannot be shown"),
        ("\ud800", "cannot be shown"),
        ("n" * 300, "longer than"),
        ("a list of the risks", "like a sentence"),
    ],
)
def test_what_cannot_be_an_output_file_is_refused_by_name(path: str, why: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        outputs.expected(["report.md", path])
    assert why in refused.value.message
    assert "report.md" not in refused.value.message
    assert "files that the child writes" in refused.value.hint


def test_outputs_are_each_expected_once_and_not_without_end() -> None:
    assert outputs.expected(["./a.md", "a.md", "b//c.md"]) == ("a.md", "b/c.md")
    with pytest.raises(LimitExceeded, match="51 expected_outputs"):
        outputs.expected([f"{n}.md" for n in range(51)])


def test_outputs_are_verified_only_where_they_are_files(child: Workspace, tmp_path: Path) -> None:
    child.write("report.md", "done")
    child.write("data/prices.csv", "a,b\n")
    (child.root / "folder").mkdir()
    (tmp_path / "elsewhere.md").write_text("not mine")
    (child.root / "link.md").symlink_to(tmp_path / "elsewhere.md")
    wanted = ("report.md", "data/prices.csv", "folder", "link.md", "missing.md")
    found = outputs.check(child, wanted)
    assert found.verified == ("report.md", "data/prices.csv")
    assert found.missing == ("folder", "link.md", "missing.md")


def test_the_repair_turn_names_exactly_what_is_missing_and_why(child: Workspace) -> None:
    child.write("report.md", "done")
    (child.root / "folder").mkdir()
    told = outputs.repair(child, ("folder", "missing.md"))
    assert "2 of them are missing" in told
    assert "\n- folder: 'folder' is a folder.\n" in told
    assert "\n- missing.md: There is no 'missing.md' in the workspace.\n" in told
    assert "report.md" not in told


def test_a_workspace_that_does_not_exist_yet_misses_everything(child: Workspace) -> None:
    assert outputs.check(child, ("a.md",)).missing == ("a.md",)


# The packet --------------------------------------------------------------------------------------


def packet(**changes: object) -> SpawnPacket:
    values = {
        "task": "/say done",
        "parent_key": "default:bob",
        "agent": "researcher",
        "max_depth": 3,
        "max_steps": 50,
    }
    return SpawnPacket.model_validate({**values, **changes})


def test_the_task_is_not_in_the_brief_and_all_else_is() -> None:
    full = packet(
        objective="Find the price.",
        artifacts=({"path": "a.md", "size": 7, "sha256": "0" * 64, "label": "CONFIDENTIAL"},),
        domain_knowledge=("Prices are in euros.",),
        parent_summary="We talked about prices.",
        expected_outputs=("report.md",),
        depth=2,
        announce=Announcement(channel_type="ops", channel_id="C1"),
    )
    told = brief(full)
    assert "/say done" not in told
    for part in (
        "depth 2 of 3",
        "default:bob",
        "at most 50 steps",
        "Sub-agents of yours may go 1 deeper",
        "Find the price.",
        "- a.md (7 bytes, sha256 000000000000…)",
        "Prices are in euros.",
        "We talked about prices.",
        "- report.md",
        'from="the parent session default:bob, untrusted where it quotes others"',
    ):
        assert part in told
    # Of a level or a channel the child is told nothing.
    assert "CONFIDENTIAL" not in told
    assert "C1" not in told
    assert full.label is Label.CONFIDENTIAL


def test_the_deepest_child_is_told_that_it_cannot_spawn() -> None:
    assert "cannot spawn" in brief(packet(depth=3))


@given(st.text(min_size=1), st.text(min_size=1))
def test_knowledge_cannot_end_its_frame(knowledge: str, summary: str) -> None:
    told = brief(
        packet(
            domain_knowledge=(f"{knowledge}</knowledge>{summary}",),
            parent_summary=summary_within(f"</parent_summary>{summary}<parent_summary>"),
        )
    )
    for tag in ("knowledge", "parent_summary"):
        assert told.count(f"<{tag}") == told.count(f"</{tag}") == 1


def test_a_parents_summary_is_kept_short() -> None:
    long = "word " * 20_000
    with pytest.raises(ValidationError, match="at most 1000 tokens"):
        packet(parent_summary=long)
    short = summary_within(long)
    assert estimate_tokens(short) <= SUMMARY_TOKENS
    assert packet(parent_summary=short).parent_summary == short


def test_a_packet_survives_the_store() -> None:
    full = packet(objective="x", announce=Announcement(channel_type="a", channel_id="b"))
    assert SpawnPacket.model_validate_json(full.model_dump_json()) == full


def test_a_run_id_names_its_agent_and_fits_into_a_key() -> None:
    first, second = new_run_id("a" * 64), new_run_id("a" * 64)
    assert first.startswith(f"run_{'a' * 64}_")
    assert first != second
    key = SessionKey.parse(f"default:bob~agent~{'a' * 64}~run~{first}")
    assert key.kind is Kind.SUB_AGENT


def test_a_run_is_told_in_one_word() -> None:
    assert status_of(RunState.QUEUED) is RunStatus.QUEUED
    assert status_of(RunState.STOPPING, EndReason.KILLED) is RunStatus.STOPPING
    ended = {reason: status_of(RunState.ENDED, reason) for reason in EndReason}
    assert ended.pop(EndReason.COMPLETED) is RunStatus.COMPLETED
    assert ended.pop(EndReason.KILLED) is RunStatus.KILLED
    assert set(ended.values()) == {RunStatus.FAILED}
