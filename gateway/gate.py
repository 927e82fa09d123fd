"""The gate: who asks, by their key, and whether they ask too much.

Invariant: a key that is revoked or over opens nothing from that moment on, in every process: its
row is read for each request, only the proof of its secret is remembered; and what it has open ends
within seconds. An unknown key and a wrong secret are one answer, after the same work.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import math
import secrets
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from time import monotonic

from anyio import CancelScope

from gateway.rates import Rates
from gateway.refusals import Refusals
from perdure.api_keys import KeyText, is_of, nobody, read_key
from perdure.domain.access import Caller
from perdure.domain.errors import RateLimited, Unauthenticated
from perdure.store import Store
from perdure.store.clock import now
from perdure.store.keys import ApiKey

#: How long a proof is remembered, in seconds, and how many are.
PROVEN_FOR = 600.0
_PROVEN_MOST = 10_000
#: Threads that hash; each takes 19 MiB and a core for about 20 ms.
_HASHERS = 2
#: Keys that wait to be hashed. More is an attack, or a herd that comes back.
_WAITING_MOST = 50
#: Attempts of one address with keys that are not good: ten a minute, up to 20 at once.
REFUSALS = (10, 20)

#: Seconds between two looks at the keys of requests that go on.
WATCH = 2.0

HOW = "Send `Authorization: Bearer pdr_…`; `perdure keys create` makes a key."

_log = logging.getLogger(__name__)


class TooOften(RateLimited):
    """Too much too fast; `seconds` until the same call may succeed."""

    def __init__(self, message: str, hint: str, seconds: float) -> None:
        super().__init__(message, hint)
        self.seconds = math.ceil(seconds)


class KeyGate:
    """Knows callers by their keys.

    Args:
        store: where the keys are.
        refusals: where refusals are noted.
        local: who asks without a key; None refuses them.
    """

    def __init__(self, store: Store, refusals: Refusals, local: Caller | None) -> None:
        self._store = store
        self._refusals = refusals
        self._local = local
        self._pepper = secrets.token_bytes(32)
        self._proven: OrderedDict[bytes, float] = OrderedDict()
        self._rates = Rates()
        self._attempts = Rates()
        self._hashing = ThreadPoolExecutor(_HASHERS, "key-hash")
        self._hashing.submit(nobody)
        self._proving: dict[bytes, asyncio.Future[bool]] = {}
        self._held: dict[str, set[CancelScope]] = {}
        self._watching: asyncio.Task[None] | None = None

    async def admit(self, key: str | None, address: str) -> Caller | None:
        """The caller with this key, asking from this address; None when there must be a key and
        none was sent.

        Raises:
            Unauthenticated: when the key is not good.
            TooOften: when the key, or the address, has asked too much.
        """
        text = read_key(key) if key is not None else None
        if text is None and self._local is not None and not (key or "").startswith("pdr_"):
            # Clients that must send something do: here nothing is asked for.
            return self._local
        if key is None:
            return None
        known = await self._proved(text, address)
        wait = self._rates.take(known.id, known.rate, known.rate)
        if wait:
            self._refusals.note(f"{known.name} ({known.id})", "rate", "More than the key may ask.")
            raise TooOften(
                f"This key may ask {known.rate} times a minute.", "Ask again later.", wait
            )
        await self._store.keys.used(known)
        return Caller(
            name=known.name,
            key_id=known.id,
            tenant=known.tenant,
            scopes=frozenset(known.scopes),
            clearance=known.clearance,
        )

    async def _proved(self, text: KeyText | None, address: str) -> ApiKey:
        """The key of a text, if it is good."""
        kept = None if text is None else await self._store.keys.get(text.id)
        good = kept is not None and kept.key.is_good(now())
        # Whoever tries keys in vain takes nothing from those beside them who have a good one.
        place = f"{address} {kept.key.id}" if kept is not None and good else address
        if text is not None:
            proof = hmac.digest(self._pepper, str(text).encode(), "sha256")
            proven = self._proven.get(proof, 0.0) > monotonic()
            if not proven:
                self._check_attempts(self._attempts.wait(place, *REFUSALS))
                proven = await self._hashed(proof, text, kept.hash if kept else None)
            if kept is not None and good and proven:
                return kept.key
        self._check_attempts(self._attempts.take(place, *REFUSALS))
        named = "text is no key of ours" if text is None else f"key {text.id}"
        self._refusals.note(address, "key", f"The {named}; unknown, wrong, revoked or over.")
        raise Unauthenticated("This API key is not good.", HOW)

    def _check_attempts(self, wait: float) -> None:
        if wait:
            raise TooOften("Too many keys from this address were not good.", HOW, wait)

    async def _hashed(self, proof: bytes, text: KeyText, hash: str | None) -> bool:
        """Whether a key is the one of which `hash` is kept. Of one key there is one hashing at a
        time, however many requests come with it."""
        hashing = self._proving.get(proof)
        if hashing is None:
            if len(self._proving) >= _WAITING_MOST:
                raise TooOften("Too many keys wait to be checked.", "Ask again in a moment.", 1.0)
            loop = asyncio.get_running_loop()
            hashing = loop.run_in_executor(self._hashing, is_of, text, hash)
            self._proving[proof] = hashing
            hashing.add_done_callback(lambda _: self._proving.pop(proof, None))
        proven = await asyncio.shield(hashing)
        if proven:
            self._proven[proof] = monotonic() + PROVEN_FOR
            self._proven.move_to_end(proof)
            if len(self._proven) > _PROVEN_MOST:
                self._proven.popitem(last=False)
        return proven

    @contextmanager
    def holding(self, key_id: str) -> Iterator[CancelScope]:
        """A scope that is cancelled when the key is not good any more, for as long as a request
        of it goes on."""
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch(), name="key-watch")
        scope = CancelScope()
        held = self._held.setdefault(key_id, set())
        held.add(scope)
        try:
            with scope:
                yield scope
        finally:
            held.discard(scope)
            if not held and self._held.get(key_id) is held:
                del self._held[key_id]

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH)
            for key_id in list(self._held):
                try:
                    kept = await self._store.keys.get(key_id)
                except Exception:
                    # What is open stays open: nothing says that the key is not good.
                    _log.exception("the key %s could not be looked at", key_id)
                    continue
                if kept is None or not kept.key.is_good(now()):
                    for scope in list(self._held.get(key_id, ())):
                        scope.cancel()

    def close(self) -> None:
        """Let go of the threads, and stop watching."""
        self._hashing.shutdown(wait=False)
        if self._watching is not None:
            self._watching.cancel()
