"""Copies of requests run one at a time, while nothing waits, and for at most a share of the time; in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from pliant.serving.loop.copies import WAITING, Copies

pytestmark = pytest.mark.virtual


@pytest.mark.parametrize(("share", "busy"), [(0.05, 0.0), (0.5, 0.0), (1.0, 0.0), (0.05, 0.75), (0.5, 0.25)])
async def test_copies_run_for_at_most_their_share_of_the_time_in_which_no_request_waits(share, busy):
    clock, ran = asyncio.get_running_loop().time, 0.0

    def idle() -> bool:
        return clock() % 1.0 >= busy

    async def copy() -> None:
        nonlocal ran
        assert idle()
        await asyncio.sleep(0.1)
        ran += 0.1

    copies = Copies(idle, share)
    begun = clock()
    for _ in range(4000):
        copies.offer(copy)
        await asyncio.sleep(0.05)
    part = ran / (clock() - begun) / (1 - busy)
    most = share / (1 - share) if busy else share  # a copy itself may outlast an idle moment
    assert 0.7 * share <= part <= most + 0.01
    await copies.stop()


@pytest.mark.parametrize("ever", [False, True])
async def test_a_copy_runs_while_nothing_is_served_or_if_that_never_comes_while_nothing_waits(ever):
    clock, ran = asyncio.get_running_loop().time, []

    def unused() -> bool:
        return ever and 3.0 <= clock() % 4.0 < 3.5

    async def copy() -> None:
        ran.append(unused())

    copies = Copies(lambda: True, 0.5, unused)
    for _ in range(5):
        copies.offer(copy)
        await asyncio.sleep(20.0)
    assert len(ran) >= 4 and set(ran) == {ever}
    await copies.stop()


async def test_a_pause_is_ended_by_the_end_of_the_service_and_copies_that_wait_are_few():
    clock, ran = asyncio.get_running_loop().time, []

    async def copy() -> None:
        await asyncio.sleep(1.0)
        ran.append(clock())

    copies = Copies(lambda: True, 0.001)
    for _ in range(10 * WAITING):
        copies.offer(copy)
    await asyncio.sleep(10.0)
    assert len(ran) == 1  # the next is due after 1,000 s
    begun = clock()
    await copies.stop()
    assert clock() == begun and len(ran) == 1
