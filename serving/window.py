"""Runs a coroutine for each of many texts of a request, of which only some run at a time.

Who comes next then waits behind these, and not behind all. As many are let run as keep the devices busy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

AT_ONCE = 16  # coroutines that are started before others on the event loop have a turn: some milliseconds
AHEAD = 2  # launches of the largest batch for each device: one that runs and one that waits


def width(devices: int, largest_batch: int) -> int:
    """Return how many texts of one request may run at a time."""
    return max(AT_ONCE, AHEAD * devices * largest_batch)


async def run_each(
    items: Sequence[Item],
    run: Callable[[Item], Awaitable[Result]],
    width: int,
    goes_on: Callable[[], bool] = lambda: True,
) -> list[Result | None]:
    """Return what `run` gives for each item, in order.

    At most `width` run at a time. If `goes_on` is false before all are started, None stands for each without a result. An
    error of `run` is raised. In both cases, and if this is cancelled, those that run are cancelled.
    """
    results: list[Result | None] = [None] * len(items)
    coming = iter(enumerate(items))

    async def run_one_after_the_other() -> None:
        for place, item in coming:
            if not goes_on():
                raise _EndedError
            results[place] = await run(item)

    tasks: list[asyncio.Task[None]] = []
    try:
        for start in range(0, min(width, len(items)), AT_ONCE):
            count = min(AT_ONCE, width - start, len(items) - start)
            tasks += [asyncio.create_task(run_one_after_the_other()) for _ in range(count)]
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)
    except _EndedError:
        pass
    finally:
        for task in tasks:
            task.cancel()
    return results


class _EndedError(Exception):
    """It does not go on."""
