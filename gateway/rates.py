"""How often somebody may do something: a token bucket for each name (GCRA).

Invariant: whoever keeps to the rate is never refused, and what is remembered is bounded: of names
that have been quiet for as long as a full bucket takes, there is nothing to remember.

The generic cell rate algorithm keeps one moment a name, the one at which its bucket is full again:
ITU-T I.371, annex A.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from time import monotonic


class Rates:
    """Counts what is done by name.

    Args:
        most: names that are remembered; the longest quiet is forgotten first.
        clock: seconds that only rise.
    """

    def __init__(self, most: int = 10_000, clock: Callable[[], float] = monotonic) -> None:
        self._most = most
        self._clock = clock
        self._full_at: OrderedDict[str, float] = OrderedDict()

    def wait(self, name: str, per_minute: float, burst: float) -> float:
        """Seconds until `name` may do it once more; 0 is now."""
        full_in = self._full_at.get(name, 0.0) - self._clock()
        return max(0.0, full_in - (burst - 1) * 60 / per_minute)

    def take(self, name: str, per_minute: float, burst: float) -> float:
        """As `wait`, and if that is 0 it is done, and counted."""
        wait = self.wait(name, per_minute, burst)
        if wait == 0:
            full_at = max(self._full_at.pop(name, 0.0), self._clock())
            self._full_at[name] = full_at + 60 / per_minute
            if len(self._full_at) > self._most:
                self._full_at.popitem(last=False)
        return wait
