"""Many listeners of one event stream, each as light as a socket can be.

Run as `python -m bench.listeners URL COUNT WARM EVENTS` it is a process of its own, so that the
gateway and who listens each have a core. It prints `connected` once all are, `warm` once each has
heard the first WARM events, and at the end, as JSON, the milliseconds from the own time of each of
the next EVENTS to its arrival at each listener.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from datetime import datetime
from urllib.parse import urlsplit


class Listener:
    """One connection: the ids that came, and how long each was under way."""

    def __init__(self) -> None:
        self.connected = asyncio.Event()
        self.warm = asyncio.Event()
        self.ids: list[int] = []
        self.times: list[float] = []

    async def listen(self, url: str, warm: int, events: int) -> None:
        """Read the stream until so many events have come after the first ones."""
        place = urlsplit(url)
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        writer.write(
            f"GET {place.path}?{place.query} HTTP/1.1\r\nHost: {place.netloc}\r\n\r\n".encode()
        )
        async for line in reader:
            if line.startswith(b"retry:"):
                self.connected.set()
            if line.startswith(b"data: {"):
                event = json.loads(line[6:])
                self.ids.append(event["id"])
                at = datetime.fromisoformat(event["at"]).timestamp()
                self.times.append((time.time() - at) * 1000)
                if len(self.ids) == warm:
                    self.warm.set()
                    self.times.clear()
            if len(self.ids) == warm + events:
                break
        writer.close()


async def main(url: str, count: int, warm: int, events: int) -> None:
    """Listen, and tell."""
    listeners = [Listener() for _ in range(count)]
    async with asyncio.TaskGroup() as group:
        for listener in listeners:
            group.create_task(listener.listen(url, warm, events))
        for listener in listeners:
            await listener.connected.wait()
        print("connected", flush=True)
        for listener in listeners:
            await listener.warm.wait()
        print("warm", flush=True)
    same = all(listener.ids == listeners[0].ids for listener in listeners)
    times = [time for listener in listeners for time in listener.times]
    print(json.dumps({"same": same, "times": [round(one, 2) for one in times]}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], *map(int, sys.argv[2:])))
