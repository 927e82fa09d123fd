"""Keys and what is sealed under them: opened whole and unaltered, or not at all."""

from __future__ import annotations

import base64
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.api.common.v1 import Payload

from gateway.cli import run
from gateway.codec import KEY_ID, Sealing
from perdure.config.encryption import EncryptionSettings
from perdure.domain.errors import InvalidArgument
from perdure.encryption import CannotOpen, Keyring, new_key

ENVIRON = {"K1": new_key(), "K2": new_key()}
SETTINGS = EncryptionSettings(keys={"k1": "env:K1", "k2": "env:K2"}, active="k1")
CODEC = Sealing(Keyring(SETTINGS, ENVIRON))


async def sealed(data: bytes = b'"words"') -> Payload:
    (payload,) = await CODEC.encode([Payload(metadata={"encoding": b"json/plain"}, data=data)])
    return payload


@given(st.binary(max_size=200), st.dictionaries(st.text(max_size=8), st.binary(max_size=8)))
async def test_a_payload_comes_back_with_its_metadata(data: bytes, metadata: dict) -> None:
    payload = Payload(metadata=metadata, data=data)
    (once,), (again,) = await CODEC.encode([payload]), await CODEC.encode([payload])
    assert once.data[:12] != again.data[:12], "each has a nonce of its own"
    assert await CODEC.decode([once, again]) == [payload, payload]


@given(st.data())
async def test_what_was_altered_anywhere_does_not_open(data: st.DataObject) -> None:
    payload = await sealed()
    place = data.draw(st.integers(0, len(payload.data) - 1))
    flipped = payload.data[place] ^ data.draw(st.integers(1, 255))
    payload.data = payload.data[:place] + bytes([flipped]) + payload.data[place + 1 :]
    with pytest.raises(CannotOpen, match="does not open with the key 'k1'"):
        await CODEC.decode([payload])


@pytest.mark.parametrize(("key_id", "told"), [(b"k2", "does not open"), (b"k3", "'k3'")])
async def test_the_name_of_the_key_is_part_of_what_is_sealed(key_id: bytes, told: str) -> None:
    payload = await sealed()
    payload.metadata[KEY_ID] = key_id
    with pytest.raises(CannotOpen, match=told):
        await CODEC.decode([payload])


async def test_without_keys_a_sealed_payload_is_not_taken_for_a_malformed_one() -> None:
    none = Sealing(Keyring(EncryptionSettings(), {}))
    clear = Payload(metadata={"encoding": b"json/plain"}, data=b"1")
    assert await none.encode([clear]) == await none.decode([clear]) == [clear]
    with pytest.raises(CannotOpen, match=r"'k1'.*keys here: none"):
        await none.decode([await sealed()])


@pytest.mark.parametrize("material", ["", "c2hvcnQ=", "no base64!", "A" * 40])
def test_a_key_that_is_none_is_refused_by_its_id_and_not_shown(material: str) -> None:
    with pytest.raises(InvalidArgument, match="encryption key k1") as refused:
        Keyring(SETTINGS, {**ENVIRON, "K1": material})
    assert not material or material not in str(refused.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"active": "k1"},
        {"keys": {"k1": "relative/path"}},
        {"keys": {"k 1": "env:K1"}},
        {"keys": {"k1": "env:PERDURE_KEY"}},
        {"keys": {"k1": "env:K1"}, "refuse_clear": True},
    ],
)
def test_settings_that_could_not_work_are_refused(wrong: dict) -> None:
    with pytest.raises(ValueError, match=r"must|needs"):
        EncryptionSettings.model_validate(wrong)


def test_a_new_key_is_the_owners_alone_and_never_written_over(tmp_path: Path) -> None:
    file = tmp_path / "k.key"
    assert run(["encryption", "new-key", "--file", str(file)]) == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    key = file.read_text()
    assert len(base64.b64decode(key)) == 32
    assert run(["encryption", "new-key", "--file", str(file)]) != 0
    assert file.read_text() == key
    Keyring(EncryptionSettings(keys={"k": str(file)}, active="k"))
