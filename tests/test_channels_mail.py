"""The mail channel against a real server: whole mails, no injected header, sorted failures."""

from __future__ import annotations

import email
import email.policy
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure.channels import ChannelSettings, courier
from perdure.channels.mail import message_of
from perdure.channels.outcomes import (
    DeliveryFailed,
    DeliveryRefused,
    DeliveryUnknown,
    Receipt,
)
from perdure.channels.urls import parse
from tests.support.channels import channel, no_backoff, parcel, send
from tests.support.outside import HOST, certificate, mail_server, only


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(courier, "_backoff", no_backoff)


def smtp(port: int, extra: str = "", user: str = "") -> ChannelSettings:
    return channel(f"smtp://{user}{HOST}:{port}?from=perdure@example.com{extra}")


async def test_a_mail_arrives_as_it_was_written() -> None:
    text = "Grüße,\n.\n..dots\nFrom the agent\n" + "long " * 500
    async with mail_server() as server:
        assert await send(smtp(server.port, "&subject=Nightly+report"), parcel(text)) == Receipt()
    (got,) = server.envelopes
    assert (got.mail_from, got.rcpt_tos) == ("perdure@example.com", ["bob@example.org"])
    mail = email.message_from_bytes(got.original_content or b"", policy=email.policy.default)
    assert mail.get_content().split("\r\n")[:-1] == text.split("\n")
    assert mail["Subject"] == "Nightly report"
    assert mail["Message-ID"] == "<dlv_1@example.com>"
    assert mail["To"] == "bob@example.org"


@given(st.text())
@example("x\r\nBcc: eve@example.org\r\n\r\nforged")
def test_no_text_adds_a_header(text: str) -> None:
    target = parse("smtp://host?from=a@example.org")
    content = message_of(target, parcel(text)).as_bytes()  # type: ignore[arg-type]
    mail = email.message_from_bytes(content, policy=email.policy.SMTP)
    assert len(mail.keys()) == 9
    assert mail["Bcc"] is None
    assert mail["To"] == "bob@example.org"


@pytest.mark.parametrize(
    ("answer", "error"), [("550 no such user", DeliveryRefused), ("451 greylisted", DeliveryFailed)]
)
async def test_a_refused_recipient_is_certainly_not_delivered(
    answer: str, error: type[Exception]
) -> None:
    async with mail_server() as server:
        server.to_recipient = answer
        with pytest.raises(error) as refused:
            await send(smtp(server.port))
    assert server.envelopes == []
    assert answer[4:] not in str(refused.value)


@pytest.mark.parametrize(
    ("answer", "error", "mails"),
    [("554 spam", DeliveryRefused, 1), ("452 full", DeliveryFailed, 4), (None, DeliveryUnknown, 1)],
)
async def test_what_happens_after_the_text_decides_how_certain_a_failure_is(
    answer: str | None, error: type[Exception], mails: int
) -> None:
    async with mail_server() as server:
        server.to_message.extend([answer] * 4)
        with pytest.raises(error):
            await send(smtp(server.port))
    assert len(server.envelopes) == mails


async def test_a_mail_that_is_put_off_is_tried_again_under_the_same_id() -> None:
    async with mail_server() as server:
        server.to_message.append("451 try again")
        assert await send(smtp(server.port)) == Receipt()
    ids = {
        email.message_from_bytes(got.original_content or b"")["Message-ID"]
        for got in server.envelopes
    }
    assert (len(server.envelopes), ids) == (2, {"<dlv_1@example.com>"})


async def test_a_password_is_not_said_to_a_server_without_encryption() -> None:
    heard: list[object] = []

    def authenticate(*args: object) -> object:
        heard.append(args)
        return only("bob", "hunter2")(*args)

    async with mail_server(authenticator=authenticate, auth_require_tls=False) as server:
        with pytest.raises(DeliveryRefused, match="STARTTLS"):
            await send(smtp(server.port, user="bob:hunter2@"))
        assert heard == []
        assert await send(smtp(server.port, "&starttls=never", "bob:hunter2@")) == Receipt()


async def test_a_log_in_crosses_only_an_encrypted_and_trusted_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusted, context = certificate(tmp_path)
    options = {"tls_context": context, "authenticator": only("bob", "hunter2")}
    async with mail_server(**options, auth_required=True) as server:
        with pytest.raises(DeliveryRefused, match="certificate"):
            await send(smtp(server.port, user="bob:hunter2@"))
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
        assert await send(smtp(server.port, user="bob:hunter2@")) == Receipt()
        with pytest.raises(DeliveryRefused, match="log-in") as refused:
            await send(smtp(server.port, user="bob:wrong-hunter2@"))
        assert "hunter2" not in str(refused.value)
    assert len(server.envelopes) == 1


async def test_an_absent_mail_server_is_certainly_not_delivered() -> None:
    async with mail_server() as server:
        pass
    with pytest.raises(DeliveryFailed, match="reached"):
        await send(smtp(server.port))
