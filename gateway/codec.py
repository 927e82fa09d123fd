"""How payloads stand in Temporal: JSON by pydantic, sealed where a key is active.

Invariant: while a key is active nothing that a payload or a failure says can be read in Temporal:
arguments, results, messages and stack traces of failures, memos, summaries and details. Search
attributes stay readable, because the server finds sessions by them; they hold ids and states.
What cannot be opened for want of a key is asked for again until the key is back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.contrib.pydantic import PydanticPayloadConverter, pydantic_data_converter
from temporalio.converter import (
    CompositePayloadConverter,
    DataConverter,
    DefaultFailureConverter,
    EncodingPayloadConverter,
    PayloadCodec,
    PayloadConverter,
)

from perdure.config import Settings
from perdure.domain.errors import Denied
from perdure.encryption import CannotOpen, Keyring

ENCODING = b"binary/encrypted"
#: The metadata that names the key.
KEY_ID = "encryption-key-id"
_REFUSED = b"binary/refused"


def data_converter(settings: Settings) -> DataConverter:
    """The one converter of this process's clients and workers.

    Raises:
        InvalidArgument: when a key cannot be read.
    """
    keyring = Keyring(settings.temporal.encryption)
    refuse = settings.temporal.encryption.refuse_clear
    return replace(
        pydantic_data_converter,
        payload_codec=Sealing(keyring, refuse_clear=refuse),
        payload_converter_class=_Refusing if refuse else PydanticPayloadConverter,
        failure_converter_class=_Sealable if keyring.active else DefaultFailureConverter,
    )


class Sealing(PayloadCodec):
    """Seals whole payloads under the active key, and opens those of any key.

    Without a key it passes clear payloads, and refuses sealed ones: else a worker without keys
    would take a sealed signal for a malformed one, and drop it.
    """

    def __init__(self, keyring: Keyring, *, refuse_clear: bool = False) -> None:
        self._keyring = keyring
        self._refuse_clear = refuse_clear

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Each payload sealed, with its own metadata inside."""
        active = self._keyring.active
        if active is None:
            return list(payloads)
        return [self._seal(active, payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Each payload as it was before it was sealed.

        Raises:
            CannotOpen: naming the key. The task is tried again until there is one.
        """
        return [self._open(payload) for payload in payloads]

    def _seal(self, key_id: str, payload: Payload) -> Payload:
        sealed = self._keyring.seal(key_id, payload.SerializeToString(), _context(key_id))
        return Payload(metadata={"encoding": ENCODING, KEY_ID: key_id.encode()}, data=sealed)

    def _open(self, payload: Payload) -> Payload:
        if payload.metadata["encoding"] != ENCODING:
            # A task that failed for it would fail for ever; this fails one message of it.
            return Payload(metadata={"encoding": _REFUSED}) if self._refuse_clear else payload
        key_id = payload.metadata[KEY_ID].decode(errors="replace")
        return Payload.FromString(self._keyring.open(key_id, payload.data, _context(key_id)))


def _context(key_id: str) -> bytes:
    return ENCODING + b" " + key_id.encode()


class _ClearPayload(EncodingPayloadConverter):
    """Tells of a payload that the codec refused."""

    @property
    def encoding(self) -> str:
        return _REFUSED.decode()

    def to_payload(self, value: Any) -> Payload | None:
        return None

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        raise Denied(
            "A payload came in clear, and temporal.encryption.refuse_clear is set.",
            "Was it made before encryption, or by a client without keys?",
        )


class _Refusing(CompositePayloadConverter):
    """The pydantic converter, and the word for what it does not get to see."""

    def __init__(self) -> None:
        converters: Mapping[bytes, EncodingPayloadConverter] = PydanticPayloadConverter().converters
        super().__init__(*converters.values(), _ClearPayload())


class _Sealable(DefaultFailureConverter):
    """Puts messages and stack traces where the codec seals them, but for the word that a key is
    missing: who has no key must be able to read that."""

    def __init__(self) -> None:
        super().__init__(encode_common_attributes=True)
        self._clear = DefaultFailureConverter()

    def to_failure(
        self,
        exception: BaseException,
        payload_converter: PayloadConverter,
        failure: Failure,
    ) -> None:
        if isinstance(exception, CannotOpen):
            self._clear.to_failure(exception, payload_converter, failure)
            failure.stack_trace = ""
            failure.ClearField("cause")
        else:
            super().to_failure(exception, payload_converter, failure)
