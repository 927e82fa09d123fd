"""Refusals at the gateway, in the audit trail.

Invariant: an entry has no key and no word of a request in it, and whoever is refused over and over
does not fill the trail: what is left out is counted in the next entry.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

from gateway.rates import Rates
from perdure.audit import AuditEntry
from perdure.domain.labels import Label
from perdure.store import Store

#: Entries of one who is refused: a few at once, then one in ten minutes.
_BURST, _PER_MINUTE = 5, 0.1
#: Entries of all together: refusals may come from many addresses.
_BURST_OF_ALL, _PER_MINUTE_OF_ALL = 100, 10
#: Names of whom refusals are counted while they are left out.
_COUNTED = 10_000

_log = logging.getLogger(__name__)


class Refusals:
    """Records refusals beside the answer, which does not wait for it: that it was recorded would
    show in the time it takes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rates = Rates()
        self._rate_of_all = Rates()
        self._left_out: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    def note(self, who: str, what: str, why: str, session_key: str = "") -> None:
        """Record that somebody was refused something.

        Args:
            who: by name, key or address.
            what: the kind of thing, as in "GET" or "session".
            why: the true reason, which they are not told.
            session_key: whose session it was about.
        """
        if self._rates.wait(who, _PER_MINUTE, _BURST) or self._rate_of_all.take(
            "all", _PER_MINUTE_OF_ALL, _BURST_OF_ALL
        ):
            if who in self._left_out or len(self._left_out) < _COUNTED:
                self._left_out[who] += 1
            return
        self._rates.take(who, _PER_MINUTE, _BURST)
        entry = AuditEntry(
            hook="ACCESS",
            session_key=session_key,
            decision="BLOCK",
            decided_by="gateway",
            label_before=Label.PUBLIC,
            label_after=Label.PUBLIC,
            reason=why,
            arguments={"who": who, "what": what, "left_out": self._left_out.pop(who, 0)},
        )
        task = asyncio.create_task(self._record(entry))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settle(self) -> None:
        """Wait until everything noted is recorded."""
        await asyncio.gather(*self._tasks)

    async def _record(self, entry: AuditEntry) -> None:
        try:
            await self._store.record(entry)
        except Exception:
            # The refusal stands, and was answered; an operator must hear that it left no trace.
            _log.exception("a refusal was not recorded")
