"""Whatever is done to a chain without its key is found and named; what is not done is not told."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.audit import (
    GENESIS,
    Anchor,
    AnchorFile,
    AuditEntry,
    AuditFiles,
    FaultKind,
    Head,
    Record,
    Report,
    Verifier,
    link,
    make_key,
    verify_export,
)
from perdure.audit.anchor import Flaw
from perdure.audit.chain import canonical, timestamp
from perdure.domain.errors import InvalidArgument, Unavailable
from perdure.domain.labels import Label

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)

_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_json: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_text, inner, max_size=3),
    max_leaves=6,
)
entries = st.builds(
    AuditEntry,
    hook=st.sampled_from(["PRE_TOOL_CALL", "PRE_OUTPUT"]),
    session_key=_text,
    turn=st.none() | st.integers(0, 9),
    step=st.none() | st.integers(0, 9),
    decision=st.sampled_from(["ALLOW", "BLOCK"]),
    decided_by=_text,
    rules_evaluated=st.lists(_json, max_size=2).map(tuple),
    label_before=st.sampled_from(Label),
    label_after=st.sampled_from(Label),
    reason=_text,
    arguments=st.dictionaries(_text, _json, max_size=3),
)


def chain_of(all_entries: list[AuditEntry], key: bytes = KEY) -> list[Record]:
    chain: list[Record] = []
    for number, entry in enumerate(all_entries):
        head = chain[-1].head if chain else GENESIS
        chain.append(link(key, head, entry, NOON + timedelta(seconds=number)))
    return chain


chains = st.lists(entries, min_size=3, max_size=9).map(chain_of)


def verified(
    chain: list[Record], anchor: Anchor | Flaw | None = None, key: bytes | None = KEY
) -> Report:
    if anchor is None:
        anchor = Anchor(chain[-1].head if chain else GENESIS)
    verifier = Verifier(key, anchor)
    for record in chain:
        verifier.take(record)
    return verifier.finish(anchor)


def kinds(report: Report) -> set[str]:
    assert report.valid == (not report.faults)
    return {str(fault.kind) for fault in report.faults}


@settings(deadline=None, max_examples=60)
@given(st.lists(entries, max_size=9))
def test_an_untouched_chain_is_valid_also_an_empty_one(all_entries: list[AuditEntry]) -> None:
    chain = chain_of(all_entries)
    report = verified(chain)
    assert (report.valid, report.entries, report.head) == (True, len(chain), len(chain))
    assert report.remarks == ()


_garbage = _text | st.none() | st.integers() | st.binary(max_size=4) | st.floats()


@settings(deadline=None, max_examples=60)
@given(chains, st.data())
def test_an_edit_of_any_column_is_found_where_it_is(chain: list[Record], data: Any) -> None:
    place = data.draw(st.integers(0, len(chain) - 1))
    column = data.draw(st.sampled_from([name for name in Record.__slots__ if name != "seq"]))
    value = data.draw(_garbage.filter(lambda v: v != getattr(chain[place], column)))
    anchor = Anchor(chain[-1].head)
    chain[place] = dataclasses.replace(chain[place], **{column: value})
    report = verified(chain, anchor)
    named = "relinked" if column == "previous" else "edited"
    assert named in kinds(report)
    # The anchor knows the last hash, too.
    assert kinds(report) <= {named, "replaced"}
    assert report.faults[0].seq == place + 1


@settings(deadline=None, max_examples=60)
@given(chains, st.data())
def test_a_link_to_another_predecessor_is_found(chain: list[Record], data: Any) -> None:
    place = data.draw(st.integers(1, len(chain) - 1))
    other = data.draw(st.sampled_from([r.hash for r in chain if r is not chain[place - 1]]))
    chain[place] = dataclasses.replace(chain[place], previous=other)
    report = verified(chain, Anchor(chain[-1].head))
    assert kinds(report) == {"relinked"}
    assert (report.faults[0].seq, report.faults[0].count) == (place + 1, 1)


@settings(deadline=None, max_examples=60)
@given(chains, st.data())
def test_two_exchanged_entries_are_found(chain: list[Record], data: Any) -> None:
    one, two = sorted(data.draw(st.sets(st.integers(0, len(chain) - 1), min_size=2, max_size=2)))
    anchor = Anchor(chain[-1].head)
    chain[one], chain[two] = (
        dataclasses.replace(chain[two], seq=one + 1),
        dataclasses.replace(chain[one], seq=two + 1),
    )
    report = verified(chain, anchor)
    assert kinds(report) - {"replaced"} == {"swapped"}
    assert (report.faults[0].seq, report.faults[0].count) == (one + 1, 2)
    assert f"it was entry {two + 1}" in report.faults[0].detail


@settings(deadline=None, max_examples=60)
@given(chains, st.data())
def test_what_was_removed_from_the_middle_is_named(chain: list[Record], data: Any) -> None:
    start = data.draw(st.integers(0, len(chain) - 2))
    stop = data.draw(st.integers(start + 1, len(chain) - 1))
    report = verified(chain[:start] + chain[stop:], Anchor(chain[-1].head))
    assert kinds(report) == {"removed"}
    gone = f"Entries {start + 1} to {stop} are" if stop - start > 1 else f"Entry {stop} is"
    assert report.faults[0].detail == f"{gone} gone."


@settings(deadline=None, max_examples=60)
@given(chains, st.data())
def test_a_cut_tail_is_found_against_the_anchor(chain: list[Record], data: Any) -> None:
    left = data.draw(st.integers(0, len(chain) - 1))
    report = verified(chain[:left], Anchor(chain[-1].head))
    assert kinds(report) == {"cut_tail"}
    assert report.faults[0].seq == left + 1


@settings(deadline=None, max_examples=60)
@given(chains, st.data())
def test_a_removal_with_new_numbers_is_found(chain: list[Record], data: Any) -> None:
    place = data.draw(st.integers(0, len(chain) - 2))
    anchor = Anchor(chain[-1].head)
    moved = [dataclasses.replace(r, seq=r.seq - 1) for r in chain[place + 1 :]]
    report = verified(chain[:place] + moved, anchor)
    assert kinds(report) == {"swapped", "cut_tail"}


@settings(deadline=None, max_examples=60)
@given(chains, st.data())
def test_an_entry_that_was_put_in_is_found(chain: list[Record], data: Any) -> None:
    forged = link(OTHER_KEY, chain[-1].head, data.draw(entries), NOON)
    assert kinds(verified([*chain, forged], Anchor(chain[-1].head))) == {"edited"}
    again = dataclasses.replace(data.draw(st.sampled_from(chain)), seq=len(chain) + 1)
    assert kinds(verified([*chain, again], Anchor(chain[-1].head))) == {"swapped"}


@settings(deadline=None, max_examples=60)
@given(chains)
def test_a_wrong_key_is_told_as_that_and_nothing_else(chain: list[Record]) -> None:
    assert kinds(verified(chain, Flaw.DAMAGED, OTHER_KEY)) == {"wrong_key"}


@settings(deadline=None, max_examples=60)
@given(chains)
def test_a_missing_key_or_anchor_is_named(chain: list[Record]) -> None:
    assert kinds(verified(chain, key=None)) == {"key_missing"}
    assert kinds(verified(chain, Flaw.MISSING)) == {"anchor_missing"}
    assert kinds(verified(chain, Flaw.DAMAGED)) == {"anchor_damaged"}
    assert kinds(verified([], Flaw.MISSING)) == {"anchor_missing"}
    assert verified([], Flaw.MISSING, key=None).valid


@settings(deadline=None, max_examples=60)
@given(chains, st.data())
def test_another_history_of_the_same_length_is_found(chain: list[Record], data: Any) -> None:
    """Written with the key and yet not what was anchored: a copy from elsewhere."""
    other = chain_of(data.draw(st.lists(entries, min_size=len(chain), max_size=len(chain))))
    if other[-1].hash != chain[-1].hash:
        assert kinds(verified(other, Anchor(chain[-1].head))) == {"replaced"}
    mixed = chain[:-1] + other[-1:]
    if other[-2].hash != chain[-2].hash:
        assert "relinked" in kinds(verified(mixed, Anchor(other[-1].head)))


@settings(deadline=None, max_examples=60)
@given(chains)
def test_a_crash_between_commit_and_anchor_is_a_remark_and_no_fault(chain: list[Record]) -> None:
    before, last = Anchor(chain[-2].head, chain[-1].head), chain[-1].seq
    died_after_commit = verified(chain, before)
    assert died_after_commit.valid
    assert f"entry {last} has not anchored it" in died_after_commit.remarks[0]
    died_before_commit = verified(chain[:-1], before)
    assert died_before_commit.valid
    assert f"Entry {last} was about to be written" in died_before_commit.remarks[0]
    behind = verified(chain, Anchor(chain[0].head))
    assert behind.valid
    assert "The anchor is behind" in behind.remarks[0]


def test_the_first_fault_of_each_kind_is_told_with_the_number_of_places() -> None:
    entry = AuditEntry(
        hook="PRE_OUTPUT",
        session_key="default:me",
        decision="ALLOW",
        decided_by="default",
        label_before=Label.PUBLIC,
        label_after=Label.PUBLIC,
    )
    chain = chain_of([entry] * 40)
    anchor = Anchor(chain[-1].head)
    for place in (9, 19, 29):
        chain[place] = dataclasses.replace(chain[place], reason="never mind")
    del chain[35]
    found = [(fault.kind, fault.seq, fault.count) for fault in verified(chain, anchor).faults]
    assert found == [(FaultKind.EDITED, 10, 3), (FaultKind.REMOVED, 36, 1)]


@settings(deadline=None, max_examples=60)
@given(_json)
def test_canonical_json_has_one_spelling(value: Any) -> None:
    text = canonical(value)
    assert text.isascii()
    assert canonical(json.loads(text)) == text


@settings(deadline=None, max_examples=60)
@given(st.datetimes(), st.datetimes())
def test_stored_times_sort_as_moments_do(one: datetime, two: datetime) -> None:
    one, two = one.replace(tzinfo=UTC), two.replace(tzinfo=UTC)
    assert (timestamp(one) < timestamp(two)) == (one < two)


# The files


def test_a_key_is_made_once_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "audit" / "key"
    key = make_key(path)
    assert make_key(path) == key
    assert len(key) == 32
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert list(path.parent.iterdir()) == [path]
    path.write_bytes(b"short")
    with pytest.raises(Unavailable, match="has 5 bytes instead of 32"):
        make_key(path)


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_an_anchor_that_was_touched_is_no_anchor(
    data: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("anchor") / "head"
    file = AnchorFile(path, KEY)
    assert file.read() is Flaw.MISSING
    anchor = Anchor(Head(12, "a" * 64), Head(13, "b" * 64))
    file.write(anchor)
    assert file.read() == anchor
    assert AnchorFile(path, OTHER_KEY).read() is Flaw.DAMAGED
    whole = path.read_bytes()
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    assert file.read() is Flaw.DAMAGED
    path.write_bytes(whole.replace(b"[12,", b"[11,"))
    assert file.read() is Flaw.DAMAGED
    path.write_bytes(whole)
    assert file.read() == anchor


def test_only_the_pending_head_can_be_settled(tmp_path: Path) -> None:
    file = AnchorFile(tmp_path / "head", KEY)
    one, two, three = (Head(seq, str(seq) * 64) for seq in (1, 2, 3))
    file.write(Anchor(one, three))
    file.settle(two)
    assert file.read() == Anchor(one, three)
    file.settle(three)
    assert file.read() == Anchor(three)
    (tmp_path / "head").unlink()
    file.settle(three)
    assert file.read() is Flaw.MISSING


# Exports


def exported(chain: list[Record]) -> list[bytes]:
    return [json.dumps(record.exported()).encode() for record in chain]


@settings(deadline=None, max_examples=60)
@given(chain=chains, data=st.data())
def test_an_export_proves_as_much_as_the_table(
    chain: list[Record], data: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    files = AuditFiles.of(tmp_path_factory.mktemp("home"))
    make_key(files.key, KEY)
    AnchorFile(files.anchor, KEY).write(Anchor(chain[-1].head))
    lines = exported(chain)
    assert [Record.from_export(json.loads(line)) for line in lines] == chain
    assert verify_export(lines, files).valid
    after = data.draw(st.integers(1, len(chain) - 1))
    assert verify_export(lines[after:], files, after).valid
    assert kinds(verify_export(lines[after:], files)) == {"removed"}
    older = verify_export(lines[:after], files)
    assert older.valid
    assert older.remarks == (f"The chain goes on behind this, to entry {len(chain)}.",)
    line = json.loads(lines[after])
    lines[after] = json.dumps(line | {"decided_by": f"{line['decided_by']}!"}).encode()
    report = verify_export(lines, files)
    assert (kinds(report), report.faults[0].seq) == ({"edited"}, after + 1)
    lines[after] = lines[after - 1]
    assert "swapped" in kinds(verify_export(lines, files))


def test_a_line_that_is_no_entry_is_refused(tmp_path: Path) -> None:
    for line in (b"{}", b"[]", b"nonsense", b"\xff"):
        with pytest.raises(InvalidArgument, match="Line 1 is no audit entry"):
            verify_export([line], AuditFiles.of(tmp_path))
