"""The mail channel: one message to one mailbox, over SMTP.

Invariant: a password never crosses an unencrypted connection unless the URL says `starttls=never`,
and whatever stands in a message cannot add a header or a recipient. Until the text is on its way
a failure is certain; from then on only the server's reply is.
"""

from __future__ import annotations

import asyncio
import re
import smtplib
import ssl
from contextlib import suppress
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime

from perdure.channels.outcomes import (
    Carrier,
    DeliveryFailed,
    DeliveryRefused,
    DeliveryUnknown,
    Parcel,
    Receipt,
)
from perdure.channels.urls import Mail, StartTls

#: Seconds for each exchange with the server. Greeting delays of 10 s are common.
EXCHANGE_SECONDS = 20.0

_CHECK_URL = "An operator must check the url of the channel."


def mail(target: Mail) -> Carrier:
    """The carrier of `smtp://` and `smtps://`."""

    async def deliver(parcel: Parcel) -> Receipt:
        await asyncio.to_thread(_deliver, target, parcel)
        return Receipt()

    return deliver


def message_of(target: Mail, parcel: Parcel) -> EmailMessage:
    """The mail that carries `parcel`. A repeated delivery has the same Message-ID."""
    mail = EmailMessage(policy=SMTP)
    mail["From"] = target.sender
    mail["To"] = parcel.address
    mail["Subject"] = target.subject
    mail["Date"] = format_datetime(datetime.now(UTC))
    mail["Message-ID"] = f"<{parcel.delivery_id}@{target.sender.rpartition('@')[2]}>"
    # Says to vacation responders and the like that nobody waits for an answer (RFC 3834).
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(parcel.text, cte="quoted-printable")
    return mail


def _deliver(target: Mail, parcel: Parcel) -> None:
    content = message_of(target, parcel).as_bytes()
    server = _connected(target)
    try:
        _introduced(server, target)
        _hand_over(server, target.sender, parcel.address, content)
        with suppress(OSError, smtplib.SMTPException):
            server.quit()
    finally:
        server.close()


def _connected(target: Mail) -> smtplib.SMTP:
    where = (target.host, target.port)
    try:
        if target.tls:
            context = ssl.create_default_context()
            return smtplib.SMTP_SSL(*where, timeout=EXCHANGE_SECONDS, context=context)
        return smtplib.SMTP(*where, timeout=EXCHANGE_SECONDS)
    except ssl.SSLCertVerificationError as error:
        raise _untrusted() from error
    except (OSError, smtplib.SMTPException) as error:
        raise DeliveryFailed("The mail server cannot be reached.") from error


def _introduced(server: smtplib.SMTP, target: Mail) -> None:
    """Say hello, encrypt and log in, as far as the URL asks for it."""
    try:
        server.ehlo_or_helo_if_needed()
        offered = server.has_extn("starttls")
        if not target.tls and target.starttls is StartTls.REQUIRED and not offered:
            raise DeliveryRefused("The mail server offers no encryption (STARTTLS).", _CHECK_URL)
        if not target.tls and target.starttls is not StartTls.NEVER and offered:
            server.starttls(context=ssl.create_default_context())
            server.ehlo()
        if target.user is not None and target.password is not None:
            server.login(target.user, target.password)
    except ssl.SSLCertVerificationError as error:
        raise _untrusted() from error
    except smtplib.SMTPNotSupportedError as error:
        raise DeliveryRefused("The mail server takes no such log-in.", _CHECK_URL) from error
    except smtplib.SMTPResponseException as error:
        raise _by_code(error.smtp_code, "the log-in") from error
    except (OSError, smtplib.SMTPException) as error:
        raise DeliveryFailed("The mail server closed the connection at the log-in.") from error


def _hand_over(server: smtplib.SMTP, sender: str, address: str, content: bytes) -> None:
    try:
        _expect(250, server.mail(sender)[0], "the sender")
        _expect(250, server.rcpt(address)[0], "the recipient")
        _expect(354, server.docmd("DATA")[0], "the message")
    except (OSError, smtplib.SMTPException) as error:
        raise DeliveryFailed("The mail server closed the connection.") from error
    try:
        # RFC 5321, 4.5.2: a line that begins with a dot gets another one.
        server.send(re.sub(rb"(?m)^\.", b"..", content).rstrip(b"\r\n") + b"\r\n.\r\n")
        code, _ = server.getreply()
    except (OSError, smtplib.SMTPException) as error:
        raise DeliveryUnknown(
            "The mail server got the message and did not say whether it takes it."
        ) from error
    _expect(250, code, "the message")


def _expect(wanted: int, code: int, what: str) -> None:
    # 251: the server forwards to another mailbox by itself.
    if code != wanted and code != 251:
        raise _by_code(code, what)


def _by_code(code: int, what: str) -> DeliveryFailed | DeliveryRefused:
    # RFC 5321, 4.2.1: 4xx is for now, 5xx for good. What the server wrote is not repeated.
    if 400 <= code < 500:
        return DeliveryFailed(f"The mail server does not take {what} now (code {code}).")
    hint = "Check the recipient." if what == "the recipient" else _CHECK_URL
    return DeliveryRefused(f"The mail server refuses {what} (code {code}).", hint)


def _untrusted() -> DeliveryRefused:
    return DeliveryRefused("The certificate of the mail server is not trusted.", _CHECK_URL)
