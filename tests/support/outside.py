"""The other side of a channel: a mail server and an HTTP receiver, both real, on free ports."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, Session
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

HOST = "127.0.0.1"


@dataclass
class Mailbox:
    """What a mail server got, and how it answers. An answer of None closes the connection."""

    port: int = 0
    envelopes: list[Envelope] = field(default_factory=list)
    to_recipient: str = "250 OK"
    to_message: deque[str | None] = field(default_factory=deque)

    async def handle_RCPT(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: Any
    ) -> str:
        if self.to_recipient.startswith("250"):
            envelope.rcpt_tos.append(address)
        return self.to_recipient

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        self.envelopes.append(envelope)
        answer = self.to_message.popleft() if self.to_message else "250 OK"
        if answer is None:
            server.transport.abort()
            return "421 gone"
        return answer


@asynccontextmanager
async def mail_server(**options: Any) -> AsyncIterator[Mailbox]:
    """A running mail server; `options` are aiosmtpd's."""
    mailbox = Mailbox()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: SMTP(mailbox, hostname="localhost", loop=loop, **options), HOST, 0
    )
    mailbox.port = server.sockets[0].getsockname()[1]
    try:
        yield mailbox
    finally:
        server.close()


def only(user: str, password: str) -> Any:
    """An authenticator that knows one user."""

    def authenticate(_server: Any, _session: Any, _envelope: Any, _kind: str, data: Any) -> Any:
        right = data.login == user.encode() and data.password == password.encode()
        return AuthResult(success=right, handled=False)

    return authenticate


@dataclass(frozen=True)
class Request:
    """A request as a receiver got it."""

    target: str
    headers: Mapping[str, str]
    body: bytes


@dataclass
class Receiver:
    """What an HTTP receiver got, and how it answers: a status with headers, or a behaviour.

    `reset` closes the connection after the request was read, `hang` never answers.
    """

    port: int = 0
    requests: list[Request] = field(default_factory=list)
    answers: deque[str] = field(default_factory=deque)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {
                line.split(": ", 1)[0].lower(): line.split(": ", 1)[1] for line in head[1:] if line
            }
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            self.requests.append(Request(head[0].split()[1], headers, body))
            self.arrived.set()
            answer = self.answers.popleft() if self.answers else "204 No Content"
            if answer == "hang":
                await asyncio.Event().wait()
            if answer == "reset":
                writer.transport.abort()
                return
            if answer != "204 No Content":
                answer += "\r\nContent-Length: 0"
            writer.write(f"HTTP/1.1 {answer}\r\nConnection: close\r\n\r\n".encode())
            await writer.drain()
            writer.close()


@asynccontextmanager
async def http_receiver(*answers: str) -> AsyncIterator[Receiver]:
    """A running HTTP receiver that gives `answers` in their order, then 204."""
    receiver = Receiver(answers=deque(answers))
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(receiver.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(connected, HOST, 0)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def certificate(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """A certificate for 127.0.0.1 that only who trusts its file trusts, and a server's context."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "perdure test")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))]), False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    trusted, secret = folder / "trusted.pem", folder / "key.pem"
    trusted.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(trusted, secret)
    return trusted, context
