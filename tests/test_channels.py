"""Channels: what may flow through them, which are refused, and the ways out on this machine."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from perdure.channels import ChannelSettings, RecipientSettings, effective_level
from perdure.channels.carriers import carrier_of
from perdure.channels.console import framed
from perdure.channels.courier import deliver
from perdure.channels.outcomes import (
    DeliveryFailed,
    DeliveryRefused,
    DeliveryUnknown,
    Parcel,
    Receipt,
)
from perdure.domain.errors import InvalidArgument
from perdure.domain.labels import Label, meet
from perdure.tools import message
from tests.support.channels import SECRET, SECRETS, channel, hook, parcel, send


# What may flow
@pytest.mark.parametrize("level", Label)
@pytest.mark.parametrize("recipient", Label)
def test_a_message_may_be_as_high_as_the_lower_of_channel_and_recipient(
    level: Label, recipient: Label
) -> None:
    settings = channel("console:", level=level, recipients={"bob": {"level": recipient}})
    expected = min(level, recipient, key=list(Label).index)
    assert effective_level(settings, "bob") == expected == meet(level, recipient)


@pytest.mark.parametrize("stranger", ["Bob", "bob ", "", "bob@example.org", "eve"])
def test_whoever_is_not_configured_by_that_very_name_is_public(stranger: str) -> None:
    bob = RecipientSettings(address="bob@example.org", level=Label.RESTRICTED)
    settings = channel("console:", level=Label.RESTRICTED, recipients={"bob": bob})
    assert effective_level(settings, stranger) is Label.PUBLIC


@pytest.mark.parametrize(
    "arguments",
    [
        '{"channel": "ops", "recipient": "bob"}',
        '{"channel": "ops", "recipient": "bob", "text": ""}',
        '{"channel": "ops", "recipient": "bob", "text": "x", "level": "RESTRICTED"}',
        '{"channel": "ops", "recipient": "bob", "text": "x", "caller_session_key": "a:b"}',
    ],
)
def test_the_tool_takes_a_channel_a_recipient_a_text_and_nothing_else(arguments: str) -> None:
    (spec,) = message.SPECS
    assert spec.parse('{"channel": "ops", "recipient": "bob", "text": "x"}')
    with pytest.raises(InvalidArgument):
        spec.parse(arguments)


# Settings
@pytest.mark.parametrize(
    "table",
    [
        {"url": "no url hunter2"},
        {"url": "smtp://bob:hunter2@"},
        {"url": "smtp://bob:hunter2@host:port"},
        {"url": "smtp://bob:hunter2@host"},
        {"url": "smtp://bob:hunter2@host?from=a@b.c&bcc=hunter2"},
        {"url": "smtp://bob:hunter2@host?from=a@b.c&starttls=hunter2"},
        {"url": "smtp://bob:hunter2@host?from=a@b.c%0d%0aBcc:eve@x.y"},
        {"url": "smtp://hunter2@host?from=a@b.c"},
        {"url": "smtp://host?from=a@b.c&subject=hunter2%0ABcc:eve@x.y"},
        {"url": "file:"},
        {"url": "file:hunter2/"},
        {"url": "console:hunter2"},
        {"url": "webhook://host/T0PT0KEN", "secret": SECRET},
        {"url": "webhook+https://host/T0PT0KEN"},
        {"url": "webhook+https://host/T0PT0KEN", "secret": "short"},
        {"url": "console:", "secret": SECRET},
        {"url": "json://{recipient}/T0PT0KEN"},
        {"url": "json://u:{recipient}@host/T0PT0KEN"},
        {"url": "slack://T0PT0KEN/x", "recipients": {"bob": {"address": "#bob"}}},
        {"url": "slack://x/{recipient}", "recipients": {"bob": {"address": "a,b"}}},
        {"url": "smtp://host?from=a@b.c", "recipients": {"bob": {}}},
        {"url": "smtp://host?from=a@b.c", "recipients": {"bob": {"address": "a@b.c, d@e.f"}}},
        {"url": "console:T0PT0KEN\n"},
        {"url": "console:", "level": "Confidental"},
        {"url": "console:", "recipients": {"bob": {"level": "SECRET"}}},
        {"url": "console:", "delivery": "exactly-once"},
        {"url": "console:", "retries": 3},
    ],
)
def test_a_channel_that_cannot_work_is_refused_without_showing_its_url(
    table: dict[str, Any],
) -> None:
    with pytest.raises(ValidationError) as refused:
        ChannelSettings.model_validate(table)
    assert not any(secret in str(refused.value) for secret in SECRETS)
    assert not any(secret in error["msg"] for secret in SECRETS for error in refused.value.errors())


def test_settings_and_what_they_say_show_no_secret() -> None:
    for url in ("smtp://bob:hunter2@host?from=a@b.c", "slack://T0PT0KEN/a/b", "json://u:hunter2@h"):
        settings = channel(url)
        shown = f"{settings!r} {settings} {settings.model_dump()} {settings.target!r}"
        assert not any(secret in shown for secret in SECRETS)
    shown = f"{hook(1, '/T0PT0KEN')!r} {hook(1, '/T0PT0KEN').target!r}"
    assert not any(secret in shown for secret in SECRETS)


def test_the_strict_validation_of_a_file_accepts_a_channel() -> None:
    table = {
        "url": "smtps://host?from=a@b.c",
        "level": "INTERNAL",
        "delivery": "at-least-once",
        "recipients": {"bob": {"address": "bob@example.org", "level": "CONFIDENTIAL"}},
    }
    settings = ChannelSettings.model_validate(table, strict=True)
    assert effective_level(settings, "bob") is Label.INTERNAL
    assert settings.address_of("bob") == "bob@example.org"
    assert settings.address_of("eve@example.org") == "eve@example.org"


def test_an_apprise_url_that_apprise_does_not_know_is_refused_at_once() -> None:
    with pytest.raises(InvalidArgument, match="ops") as refused:
        carrier_of("ops", channel("nosuchservice://T0PT0KEN/x"), Path("/nowhere"))
    assert "T0PT0KEN" not in str(refused.value)


def test_knowing_the_settings_loads_no_carrier() -> None:
    code = (
        "import sys, perdure.channels\n"
        "print([n for n in ('apprise', 'httpx2', 'smtplib', 'sqlalchemy') if n in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


# Console
async def test_the_console_shows_whole_messages(capsys: pytest.CaptureFixture[str]) -> None:
    assert await send(channel("console:"), parcel("one\ntwo")) == Receipt()
    assert capsys.readouterr().out == "┌ ops → bob@example.org · dlv_1\n│ one\n│ two\n└\n"


@given(st.text())
@example("\x1b]0;title\x07\x1b[2J")
@example("done\n└\n┌ ops → eve · dlv_2\n│ forged")
@example("a\rb\u2028c\u202ed\x85e")
def test_no_message_fakes_a_frame_or_drives_the_terminal(text: str) -> None:
    lines = framed(parcel(text)).split("\n")
    assert lines[-2:] == ["└", ""]
    assert all(line.startswith("│ ") for line in lines[1:-2])
    assert all(char.isprintable() or char == "\t" for line in lines for char in line)


# File
async def test_a_file_gets_one_line_a_message(tmp_path: Path) -> None:
    settings = channel("file:out/messages.jsonl")
    for number in range(3):
        text = f"{number}\nü\u2028{{"
        assert await send(settings, parcel(text), tmp_path) == Receipt(confirmed=True)
    lines = (tmp_path / "out/messages.jsonl").read_bytes().split(b"\n")
    assert [json.loads(line)["text"] for line in lines[:-1]] == [
        f"{number}\nü\u2028{{" for number in range(3)
    ]
    assert lines[-1] == b""
    assert json.loads(lines[0]).keys() == {"delivery_id", "at", "channel", "recipient", "text"}


async def test_writers_of_many_processes_never_tear_a_line(tmp_path: Path) -> None:
    code = """
import asyncio, sys
from pathlib import Path
from perdure.channels import ChannelSettings
from perdure.channels.carriers import carrier_of
from perdure.channels.outcomes import Parcel
carrier = carrier_of("ops", ChannelSettings(url="file:out.jsonl"), Path(sys.argv[1]))
async def main():
    await asyncio.gather(*(
        carrier(Parcel(
            delivery_id=f"{sys.argv[2]}-{n}", channel="ops", address="bob",
            text=sys.argv[2] * (n * 3_000),
        ))
        for n in range(25)
    ))
asyncio.run(main())
"""
    writers = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", code, str(tmp_path), name)
        for name in "abcd"
    ]
    assert [await writer.wait() for writer in writers] == [0, 0, 0, 0]
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert sorted(line["delivery_id"] for line in lines) == sorted(
        f"{name}-{number}" for name in "abcd" for number in range(25)
    )
    for line in lines:
        name, number = line["delivery_id"].split("-")
        assert line["text"] == name * (int(number) * 3_000)


async def test_a_torn_end_never_joins_the_next_line(tmp_path: Path) -> None:
    (tmp_path / "out.jsonl").write_text('{"delivery_id": "dlv_0", "te')
    await send(channel("file:out.jsonl"), home=tmp_path)
    torn, whole = (tmp_path / "out.jsonl").read_text().splitlines()
    assert torn == '{"delivery_id": "dlv_0", "te'
    assert json.loads(whole)["delivery_id"] == "dlv_1"


async def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "perdure.db").write_bytes(b"SQLite format 3\0")
    with pytest.raises(DeliveryRefused):
        await send(channel("file:perdure.db"), home=tmp_path)
    assert (tmp_path / "perdure.db").read_bytes() == b"SQLite format 3\0"


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../../x", "link/x", "."])
def test_a_file_outside_the_home_is_refused_at_once(tmp_path: Path, path: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "link").symlink_to(tmp_path)
    with pytest.raises(InvalidArgument, match="inside the home"):
        carrier_of("ops", channel(f"file:{path}"), home)


async def test_a_file_exchanged_for_a_link_out_of_the_home_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    carrier = carrier_of("ops", channel("file:out.jsonl"), home)
    (home / "out.jsonl").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DeliveryRefused):
        await carrier(parcel())
    assert not (tmp_path / "elsewhere").exists()


async def test_a_file_that_cannot_be_opened_is_certainly_not_delivered(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file where a folder is wanted")
    with pytest.raises(DeliveryFailed):
        await send(channel("file:out/messages.jsonl"), home=tmp_path)


# Whatever a carrier does
async def test_an_unforeseen_error_is_of_unknown_outcome_and_quotes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def broken(_parcel: Parcel) -> Receipt:
        raise RuntimeError(f"cannot post to https://host/{SECRETS[1]}")

    with pytest.raises(DeliveryUnknown) as unknown:
        await deliver(broken, parcel(), repeat=False)
    assert "RuntimeError" in caplog.text
    assert "T0PT0KEN" not in str(unknown.value) + caplog.text
