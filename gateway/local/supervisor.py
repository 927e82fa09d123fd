"""One process that is meant to run: when it ends, it is started again.

Invariant: from `start` to `stop` there is at most one such process, and the pauses between tries
grow, so a process that cannot live costs next to nothing and still comes back when it can.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gateway.local.children import Child, Command

#: Seconds between the end of a process and its next start: the first pause, and the longest.
FIRST_PAUSE = 0.2
LONGEST_PAUSE = 10.0
#: A process that lived so many seconds was well: the pauses begin anew.
WELL_AFTER = 30.0
#: So many ends in a row, none of them after a good life, are worth a look at its log.
TROUBLE = 3


class Supervisor:
    """Keeps one command running.

    Args:
        command: what to run.
        grace: seconds it gets to end by itself when stopped.
        tell: called with a line, or a few, when the process has ended.
        changed: called when the process id has changed; from the same event loop.
    """

    def __init__(
        self,
        command: Command,
        *,
        grace: float,
        tell: Callable[[str], None],
        changed: Callable[[], None],
    ) -> None:
        self.command = command
        #: Ends in a row without a good life between them.
        self.ends = 0
        self._grace = grace
        self._tell = tell
        self._changed = changed
        self._child: Child | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()

    @property
    def pid(self) -> int | None:
        """The process that runs now; None between two."""
        return self._child.pid if self._child is not None and self._child.alive else None

    @property
    def last_words(self) -> str:
        """The last line that the latest process has written."""
        return self._child.tail(1) if self._child is not None else ""

    async def start(self, child: Child | None = None) -> None:
        """Start the command, or take over `child`, which runs it already.

        Raises:
            OSError: when no process can be made.
        """
        self._child = child or await Child.start(self.command)
        self._task = asyncio.create_task(self._keep(self._child))

    async def stop(self) -> None:
        """End the process and keep it ended. Does nothing twice."""
        self._stopping.set()
        if self._child is not None:
            await self._child.stop(self._grace)
        if self._task is not None:
            await self._task

    def kill(self) -> None:
        """End the grace that a `stop` under way gives."""
        if self._child is not None:
            self._child.kill()

    async def _keep(self, child: Child) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._changed()
            born = loop.time()
            await child.wait()
            if self._stopping.is_set():
                return
            self._changed()
            self.ends = 1 if loop.time() - born >= WELL_AFTER else self.ends + 1
            again = await self._start_again(child)
            if again is None:
                return
            self._child = child = again
            if self._stopping.is_set():
                # `stop` came while this one was being started, and has not seen it.
                await child.stop(self._grace)
                return

    async def _start_again(self, ended: Child) -> Child | None:
        pause = min(FIRST_PAUSE * 2 ** min(self.ends - 1, 16), LONGEST_PAUSE)
        self._tell(f"{self.command.name} {ended.end}; it is started again in {pause:g} s.")
        if self.ends % TROUBLE == 0:
            self._tell(f"The end of {self.command.log}:\n{ended.tail()}")
        while not await self._told_to_stop(pause):
            try:
                return await Child.start(self.command)
            except OSError as error:
                pause = LONGEST_PAUSE
                self._tell(f"{self.command.name} cannot be started: {error}.")
        return None

    async def _told_to_stop(self, within: float) -> bool:
        try:
            await asyncio.wait_for(self._stopping.wait(), within)
        except TimeoutError:
            return False
        return True
