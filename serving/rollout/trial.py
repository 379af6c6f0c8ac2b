"""A challenger on trial: routes requests by their keys, sends copies, and feeds the controller (pliant/rollout).

A request that the challenger does not answer, because of an error or as its queue is too long, is answered by the champion:
a bad challenger costs time, and no request. Of the canary's answers copies go to the champion, and of the champion's to the
challenger, so that both are compared on the same requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, TypeVar
from uuid import uuid4

from pliant.rollout.assign import is_canary, is_copied
from pliant.rollout.controller import Rollout
from pliant.rollout.events import Action, CanaryOutcome, Event, Label, ShadowCompared
from pliant.rollout.measures import Arm
from registry.releases import RegistryRelease
from serving.arms import request_key, to_challenger, to_champion_as_copy
from serving.clock import Clock
from serving.http.api_errors import api_error_of
from serving.rollout.copies import Copies, Copy
from serving.rollout.judge import Judge

A = TypeVar("A")
Call = Callable[[float], Awaitable[A]]
"""Answers a request that arrived at a time on the endpoint's clock."""
Ended = Callable[[A], Awaitable[None]]

PAIRS = 4096  # answers of both arms whose label may still come
OVERLOAD = ("late", "full")
"""Codes of requests that are refused because the queue is too long."""
LOGGED = 5  # errors of a challenger

logger = logging.getLogger("pliant.serving")


class Trial:
    """One release on trial. `act` is called with whatever the controller wants done."""

    def __init__(
        self,
        release: RegistryRelease,
        rollout: Rollout,
        clock: Clock,
        idle: Callable[[], bool],
        act: Callable[[list[Action]], None],
        copy_time: float = 1.0,
        unused: Callable[[], bool] = lambda: True,
    ) -> None:
        """`clock` is the endpoint's, in seconds; `idle`, `copy_time` and `unused`: see `Copies`."""
        self.release, self.rollout = release, rollout
        self.open = True
        """Whether the challenger may be given requests: while its models start anew, the champion has them."""
        self._salt, self._clock, self._act = str(release.number), clock, act
        self._copies = Copies(idle, copy_time, unused)
        self._failed = 0
        self._following: set[asyncio.Task[None]] = set()  # each waits for the end of an answer
        self._pairs: OrderedDict[str, tuple[Any, Any]] = (
            OrderedDict()
        )  # id of an answer -> what champion, challenger said

    async def answer(self, call: Call[A], arrived: float, judge: Judge[A], ended: Ended[A] | None = None) -> A:
        """Return the answer of the arm that the request's key belongs to. Raises what that arm raises.

        `ended`: waits for the end of an answer that is returned when it begins, as a stream is.
        """
        key = request_key()
        if (
            self.open
            and self.rollout.stage in ("canary", "promoted")
            and is_canary(self._salt, key, self.rollout.share)
        ):
            return await self._by_challenger(call, arrived, judge, ended)
        id = uuid4().hex
        try:
            answer = await call(arrived)
        except Exception as error:
            self._count_failure(id, "champion", error)
            raise
        copy = partial(self._copy_to_challenger, id, answer, call, judge, ended) if self._wants_copy(id) else None
        self._answered(id, "champion", answer, arrived, judge, ended, copy)
        return answer

    async def _by_challenger(self, call: Call[A], arrived: float, judge: Judge[A], ended: Ended[A] | None) -> A:
        id = uuid4().hex
        try:
            with to_challenger():
                answer = await call(arrived)
        except Exception as error:
            # The time that the challenger has wasted is not the client's: better late than not at all. Where the request is
            # at fault, the champion refuses it, too.
            answer = await call(self._clock())
            late = api_error_of(error).code in OVERLOAD
            self.feed(CanaryOutcome(id, "canary", error=not late, late=late, utility=0.0))
            self._log(error)
            return answer
        decided = self.rollout.decided
        copy = None if decided else partial(self._copy_to_champion, id, answer, call, judge, ended)
        self._answered(id, "canary", answer, arrived, judge, ended, copy)
        return answer

    def _answered(
        self,
        id: str,
        arm: Arm,
        answer: A,
        arrived: float,
        judge: Judge[A],
        ended: Ended[A] | None,
        copy: Copy | None,
    ) -> None:
        """Count an answer, now or when it has ended, and have it copied then."""
        if ended is None:
            self._count(id, arm, answer, arrived, judge)
            if copy is not None:
                self._copies.offer(copy)
            return

        async def follow() -> None:
            await ended(answer)
            self._answered(id, arm, answer, arrived, judge, None, copy)

        task = asyncio.create_task(follow())
        self._following.add(task)
        task.add_done_callback(self._following.discard)

    def label(self, id: str, right: Callable[[Any], bool]) -> None:
        """Take the label of an answer of either arm. `right` says whether what an arm said is correct."""
        pair = self._pairs.pop(id, None)
        if pair is not None:
            champion, challenger = pair
            self.feed(Label(id, right(champion), right(challenger)))

    def feed(self, event: Event) -> None:
        """Give the controller an event, and have done what it wants."""
        actions = self.rollout.handle(event, self._clock())
        if actions:
            self._act(actions)

    async def stop(self) -> None:
        """Send no more copies, and follow no more answers."""
        for task in self._following:
            task.cancel()
        await asyncio.gather(*self._following, return_exceptions=True)
        await self._copies.stop()

    def _wants_copy(self, id: str) -> bool:
        return self.rollout.stage == "shadow" and is_copied(self._salt, id, self.rollout.config.shadow_share)

    async def _copy_to_challenger(
        self, id: str, champion: A, call: Call[A], judge: Judge[A], ended: Ended[A] | None
    ) -> None:
        with to_challenger(copy=True):
            challenger = await call(self._clock())
        if ended is not None:
            await ended(challenger)
        self._compare(id, champion, challenger, judge, judge.labels(champion))

    async def _copy_to_champion(
        self, id: str, challenger: A, call: Call[A], judge: Judge[A], ended: Ended[A] | None
    ) -> None:
        with to_champion_as_copy():
            champion = await call(self._clock())
        if ended is not None:
            await ended(champion)
        self._compare(id, champion, challenger, judge, judge.labels(challenger))

    def _compare(self, id: str, champion: A, challenger: A, judge: Judge[A], known: Iterable[str]) -> None:
        """Compare both answers to a request. `known`: the ids that the client may report labels under."""
        if judge.failure(champion) is not None or judge.failure(challenger) is not None:
            return
        said = zip(judge.labels(champion).values(), judge.labels(challenger).values(), strict=True)
        self._pairs.update(zip(known, said, strict=True))
        while len(self._pairs) > PAIRS:
            self._pairs.popitem(last=False)
        comparable = judge.comparable(champion, challenger)
        utilities = (judge.utility(champion), judge.utility(challenger)) if comparable else (None, None)
        self.feed(ShadowCompared(id, judge.agree(champion, challenger), *utilities))

    def _count(self, id: str, arm: Arm, answer: A, arrived: float, judge: Judge[A]) -> None:
        failure = judge.failure(answer)
        if failure is not None:
            self._count_failure(id, arm, failure)
            return
        late, latency = judge.late(answer), max(0.0, self._clock() - arrived)
        self.feed(CanaryOutcome(id, arm, latency, late=late, utility=judge.utility(answer)))

    def _count_failure(self, id: str, arm: Arm, error: Exception) -> None:
        """Count a request without an answer. A client's mistake is no arm's fault."""
        reported = api_error_of(error)
        if reported.code in OVERLOAD:
            self.feed(CanaryOutcome(id, arm, late=True, utility=0.0))
        elif reported.status >= 500:
            self.feed(CanaryOutcome(id, arm, error=True, utility=0.0))

    def _log(self, error: Exception) -> None:
        """Log an error of the challenger, the first few times."""
        self._failed += 1
        if self._failed <= LOGGED:
            logger.warning("%s failed a request, which the champion answered: %s", self.release.name, error)
