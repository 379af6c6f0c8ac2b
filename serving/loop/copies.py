"""Runs copies of requests in idle moments, one at a time, so that those whom somebody waits for lose next to nothing.

Copies run for at most a share of the idle time: after each there is a pause in proportion to what it took, in which only the
moments count in which no request waits. A device busy for a share r of the time lets requests wait for about 1 / (1 - r) of
its service time (M/M/1), so that a share s of what is left makes that 1 / (1 - s) times as long, at any load.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress

logger = logging.getLogger("pliant.serving")

Copy = Callable[[], Awaitable[None]]

WAITING = 16  # copies; the oldest is forgotten for a newer one
PAUSE = 0.01  # seconds between two looks whether there is nothing else to do
PATIENCE = 10.0  # seconds that a copy waits for an idle moment
LIMIT = 120.0  # seconds that a copy may take


class Copies:
    """Copies that wait, and the task that runs them while there are any."""

    def __init__(self, idle: Callable[[], bool], share: float = 1.0, unused: Callable[[], bool] = lambda: True) -> None:
        """`idle` says whether no request waits, and `unused` whether none is even served: then is the best moment.

        `share`: of the idle time in which copies run, above 0 and at most 1.
        """
        self._idle, self._pauses, self._unused = idle, 1 / share - 1, unused
        self._waiting: deque[Copy] = deque(maxlen=WAITING)
        self._task: asyncio.Task[None] | None = None

    def offer(self, copy: Copy) -> None:
        """Run the copy soon, unless too many come."""
        self._waiting.append(copy)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Forget those that wait, and end the one that runs."""
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        clock = asyncio.get_running_loop().time
        while self._waiting:
            until = clock() + PATIENCE
            while not (self._idle() and self._unused()) and clock() < until:
                await asyncio.sleep(PAUSE)
            if not self._idle():
                self._waiting.clear()  # they are old, and the next ones will come
                return
            if self._waiting:
                begun = clock()
                try:
                    async with asyncio.timeout(LIMIT):
                        await self._waiting.popleft()()
                except Exception as error:  # nobody waits for it
                    logger.debug("a copy of a request failed: %s", error)
                pause = self._pauses * (clock() - begun)
                while pause > 0:  # until nothing has waited for so long, as seen a hundred times a second
                    step = min(pause, PAUSE)
                    await asyncio.sleep(step)
                    pause -= step * self._idle()
