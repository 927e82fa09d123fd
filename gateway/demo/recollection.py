"""What became of a long conversation: its summaries, and how deep its beginning lies under them.

Invariant: facts of the store; nothing is changed.
"""

from __future__ import annotations

from gateway.demo.cast import ARCHIVE
from perdure.domain.messages import Frozen
from perdure.store import Store
from perdure.store.integrity import check


class Recollection(Frozen):
    """The summaries of the archive's session, and where its first message is."""

    messages: int = 0
    #: All there are, and those of them that a model would read now.
    summaries: int = 0
    in_context: int = 0
    #: Messages that a model would read as they are.
    raw: int = 0
    #: Summaries above the first message, one standing for the other: leaf, summary of leaves, …
    depths_above_the_first: int = 0
    #: What is wrong with the DAG.
    faults: int = 0


async def gather_recollection(store: Store) -> Recollection:
    """What the store says of the archive; nothing where there is none."""
    session = await store.sessions.get(ARCHIVE)
    if session is None:
        return Recollection()
    tree = await store.nodes.tree(ARCHIVE)
    seen = [node for node in tree.summaries if node.until_turn is None]
    return Recollection(
        messages=session.message_count,
        summaries=len(tree.summaries),
        in_context=len(seen),
        raw=session.message_count - sum(node.messages for node in seen),
        depths_above_the_first=max((n.depth + 1 for n in seen if n.covers(1)), default=0),
        faults=len(await check(store.database, ARCHIVE)),
    )
