"""Long-term memory: what agents remember across sessions, found by meaning and by word.

Invariant: the one room that imports LanceDB, and only when a table is opened. Importing this
package imports neither it nor a model.
"""

from perdure.memory.embedders import BUNDLED, HASHING, Embedder, EmbedderFailure, embedder
from perdure.memory.files import MemoryFile
from perdure.memory.memory import Memory
from perdure.memory.pinning import Pinned

__all__ = [
    "BUNDLED",
    "HASHING",
    "Embedder",
    "EmbedderFailure",
    "Memory",
    "MemoryFile",
    "Pinned",
    "embedder",
]
