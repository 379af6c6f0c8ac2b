"""Arms are hidden from clients, and what a client does to its own request counts for neither arm."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from pliant.registry.releases import RegistryRelease
from pliant.rollout.config import RolloutConfig
from pliant.rollout.controller import Rollout
from pliant.rollout.events import CanaryOutcome
from pliant.serving.http.api_errors import ApiError
from pliant.serving.loop.observe import Served
from pliant.serving.loop.pairs import Pairs
from pliant.serving.loop.trial import Trial
from pliant.serving.request_context import REQUEST_KEY, TO_CHALLENGER
from tests.serving.loop.trial_service import Answer

pytestmark = pytest.mark.virtual

LATE = ApiError(503, "late", "the queue is too long")
CANARY = RolloutConfig(shadow_requests=0, steps=(0.5, 1.0), step_requests=10_000)


class Ground:
    """A canary at half of the requests, whose arms do what `does(by challenger, seconds left)` says."""

    def __init__(self, does, config: RolloutConfig = CANARY) -> None:
        self.does, self.clock = does, asyncio.get_running_loop().time
        release = RegistryRelease("bins", 7, 6, {}, {})
        self.rollout, self.actions = Rollout(config), []
        self.trial = Trial(
            release, self.rollout, self.clock, lambda: False, self.actions.extend, Pairs(Path("none"), 7)
        )
        for number in range(200):  # so that the usual latency is known: 20 ms
            self.rollout.handle(CanaryOutcome(f"before {number}", "champion", 0.02, late=False), self.clock())

    async def ask(self, key: str = "", sent: float = 0.0, deadline: float = 0.2) -> tuple[bool | None, float]:
        """Return which arm answered (None: neither) and the seconds from the request's head, whose body took `sent`."""
        REQUEST_KEY.set(key)
        arrived = self.clock()
        await asyncio.sleep(sent)

        async def call(since: float) -> Served:
            by_challenger = TO_CHALLENGER.get()
            await self.does(by_challenger, since + deadline - self.clock())
            return Answer(float(by_challenger), 1).served

        try:
            answer = (await self.trial.answer(call, arrived, deadline)).answer
        except ApiError:
            return None, self.clock() - arrived
        return bool(answer.value), self.clock() - arrived

    def totals(self, name: str) -> list[float]:
        return self.rollout.comparisons[name].total


async def in_time_or_refused(_by_challenger: bool, left: float) -> None:
    if left < 0.01:
        raise LATE
    await asyncio.sleep(0.01)


async def test_a_body_that_comes_after_its_deadline_and_a_deadline_that_none_can_keep_count_for_neither_arm():
    ground = Ground(in_time_or_refused)
    before = [ground.totals(name) for name in ("late", "errors")]
    for _ in range(100):
        assert (await asyncio.create_task(ground.ask(sent=0.3)))[0] is None
        assert (await asyncio.create_task(ground.ask(deadline=0.005)))[0] is None
    assert [ground.totals(name) for name in ("late", "errors")] == before and not ground.rollout.decided
    await ground.trial.stop()


async def test_what_the_challenger_fails_is_answered_within_what_is_left_of_the_deadline_and_counts_as_its():
    async def slow_and_late(by_challenger: bool, left: float) -> None:
        if by_challenger:
            await asyncio.sleep(0.15)
            raise LATE
        await in_time_or_refused(by_challenger, left)

    ground = Ground(slow_and_late)
    for deadline, answered in ((0.2, True), (0.155, False)):
        ends = [await asyncio.create_task(ground.ask(deadline=deadline)) for _ in range(20)]
        assert all(by is False or not answered for by, _ in ends)
        assert max(seconds for _, seconds in ends) < 0.2, "the champion has what is left, and no clock of its own"
    _, late_champion, canary, late_canary = ground.totals("late")
    assert late_champion == 0 and late_canary == canary > 5, "late counts also where nobody had time to repair it"
    await ground.trial.stop()


async def test_who_has_seen_the_arm_of_a_key_cannot_send_it_its_worst_requests():
    async def fails(_by_challenger: bool, _left: float) -> None:
        raise ApiError(500, "internal", "as any release would")

    ground = Ground(in_time_or_refused)
    arms = {key: (await asyncio.create_task(ground.ask(key)))[0] for key in map(str, range(40))}
    assert set(arms.values()) == {True, False}
    ground.does = fails
    for key in [key for key, by_challenger in arms.items() if by_challenger] * 5:
        await asyncio.create_task(ground.ask(key))
    assert not ground.rollout.decided and ground.rollout.evidence < 2
    await ground.trial.stop()


async def test_arms_cannot_be_computed_from_the_release_and_stay_after_a_restart():
    grounds = [Ground(in_time_or_refused) for _ in range(2)]
    arms = [[(await asyncio.create_task(g.ask(str(key))))[0] for key in range(60)] for g in grounds]
    assert arms[0] != arms[1], "the same release, the same keys"
    kept = json.loads(json.dumps({"secret": grounds[0].trial.secret}))
    again = Ground(in_time_or_refused)
    again.trial.secret = kept["secret"]
    assert [(await asyncio.create_task(again.ask(str(key))))[0] for key in range(60)] == arms[0]
