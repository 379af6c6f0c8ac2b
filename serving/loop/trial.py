"""A challenger on trial: routes requests by their keys, sends copies, and feeds the controller (pliant/rollout).

One of the two releases is beside the present generation: the challenger, and in its guard the former champion.
A request that the release beside does not answer, because of an error or as its queue is too long, is answered by the other
in what is left of its deadline. Of the canary's answers copies go to the champion, and of the champion's to the challenger,
so that both are compared on the same requests; of both kinds there are about as many.

The arm is drawn with a secret, so nobody can choose which arm gets his worst requests. Who has seen the arm of a key can,
so that errors and lateness count of the first request of a key alone. Turns at all requests (turns.py) hide nothing, so that
there only the cap of each tenant's evidence holds. What no arm could have done in time, since its client
was slow to send it or left it too little time, is nobody's fault.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from secrets import token_hex
from typing import Any, Generic, TypeVar
from uuid import uuid4

from pliant.outcomes.labels import slices_of
from pliant.registry.releases import RegistryRelease
from pliant.rollout.config import position
from pliant.rollout.controller import Rollout
from pliant.rollout.events import Action, CanaryOutcome, Event, Label, ShadowCompared
from pliant.rollout.measures import Arm
from pliant.serving.driver import Clock
from pliant.serving.http.api_errors import api_error_of
from pliant.serving.loop.copies import Copies
from pliant.serving.loop.observe import Served, agree
from pliant.serving.loop.pairs import LATEST, Pair, Pairs
from pliant.serving.request_context import EVIDENCE, REQUEST_KEY, TENANT, to_challenger, to_champion_as_copy

A = TypeVar("A")
Call = Callable[[float], Awaitable[Served[A]]]
"""Answers a request that arrived at a time on the endpoint's clock."""
Ended = Callable[[A], Awaitable[Exception | None]]
"""Waits for the end of an answer that is returned when it begins, as a stream is. Returns why it did not come to it."""

KEYS = 100_000  # whose first request is known to have come; of further ones none counts
OVERLOAD = ("late", "full")
"""Codes of requests that are refused because the queue is too long."""
LOGGED = 5  # errors of a challenger

logger = logging.getLogger("pliant.serving")


@dataclass(frozen=True, slots=True)
class Tried(Generic[A]):
    """A request while there is a trial. Times are on the endpoint's clock."""

    id: str
    call: Call[A]
    arrived: float  # its head, from which its deadline counts
    begun: float  # when it was there as a whole
    ended: Ended[A] | None
    tenant: str  # whose evidence it is
    fair: bool  # see `CanaryOutcome`


class Trial:
    """One release on trial. `act` is called with whatever the controller wants done."""

    def __init__(
        self,
        release: RegistryRelease,
        rollout: Rollout,
        clock: Clock,
        idle: Callable[[], bool],
        act: Callable[[list[Action]], None],
        pairs: Pairs,
        copy_time: float = 1.0,
        unused: Callable[[], bool] = lambda: True,
        secret: str = "",
        beside: Callable[[], Arm] = lambda: "canary",
    ) -> None:
        """`clock` is the endpoint's, in seconds; `idle`, `copy_time` and `unused`: see `Copies`.

        `secret`: by which arms are drawn, where a former process began this trial. `beside`: whose generation is beside the
        present one.
        """
        self.release, self.rollout = release, rollout
        self.open = True
        """Whether the challenger may be given requests: while its models start anew, the champion has them."""
        self.secret = secret or token_hex(16)
        self._drawn: set[float] = set()  # positions of keys
        self._clock, self._act, self._beside = clock, act, beside
        self._copies = Copies(idle, copy_time, unused)
        self._failed = 0
        self._following: set[asyncio.Task[None]] = set()  # each waits for the end of an answer
        self.pairs = pairs
        self._unmatched: OrderedDict[str, tuple[str | float, tuple[str, ...], str]] = OrderedDict()
        """Labels whose pair is on disk, or comes later, each with its slices, and whose evidence it is."""
        self._unsought: list[str] = []  # ids of those that were not looked for on disk yet

    async def answer(self, call: Call[A], arrived: float, deadline: float, ended: Ended[A] | None = None) -> Served[A]:
        """Return the answer of the arm that the request's key belongs to. Raises what that arm raises.

        `deadline`: in seconds from `arrived`.
        """
        arm, hidden = self._draw()
        tenant, begun = EVIDENCE.get(), self._clock()
        # The deadline of an answer that goes on after it has begun is that of its beginning, whose usual latency is unknown.
        needed = self.rollout.usual_latency(tenant) if ended is None else 0.0
        possible = arrived + deadline - begun > needed
        request = Tried(uuid4().hex, call, arrived, begun, ended, tenant, hidden and possible)
        if arm == self._beside():
            try:
                with to_challenger():
                    answer = await call(arrived)
            except Exception as error:
                self._failed += 1
                if self._failed <= LOGGED:
                    logger.warning(
                        "the %s of %s failed a request, which was answered: %s", arm, self.release.name, error
                    )
                try:  # where the request is at fault, the other one refuses it, too
                    answer = await call(arrived)
                except Exception as second:
                    refused = api_error_of(second)
                    if refused.status >= 500 or refused.code in OVERLOAD:
                        self._count_failure(request, arm, error)
                    raise
                late = api_error_of(error).code in OVERLOAD
                self._feed_outcome(request, arm, error=not late, late=late)
                return answer
        else:
            try:
                answer = await call(arrived)
            except Exception as error:
                self._count_failure(request, arm, error)
                raise
        self._answered(request, arm, answer)
        return answer

    def _draw(self) -> tuple[Arm, bool]:
        """Return who answers the request, and whether its client could not know that, or all requests are one arm's."""
        if not self.open or self.rollout.stage == "shadow":
            return "champion", True
        key = REQUEST_KEY.get()
        place = position(self.secret, key or uuid4().hex)
        hidden = not key or self.rollout.in_turns or (place not in self._drawn and len(self._drawn) < KEYS)
        if key and hidden:
            self._drawn.add(place)
        return "canary" if place < self.rollout.share else "champion", hidden

    def _answered(self, request: Tried[A], arm: Arm, answer: Served[A]) -> None:
        """Count an answer, now or when it has ended, and have it copied then."""
        copied = self.open and position(self.secret, request.id, "shadow") < self.rollout.copied(arm)

        def count(failure: Exception | None) -> None:
            if failure is not None:
                self._count_failure(request, arm, failure)
                return
            latency = max(0.0, self._clock() - request.begun)
            self._feed_outcome(request, arm, latency, late=answer.late)
            if copied:
                self._copies.offer(partial(self._copy, request, answer, arm))

        if request.ended is None:
            count(None)
            return

        async def follow(ended: Ended[A]) -> None:
            count(await ended(answer.answer))

        task = asyncio.create_task(follow(request.ended))
        self._following.add(task)
        task.add_done_callback(self._following.discard)

    def label(self, id: str, label: str | float, declared: str = "") -> None:
        """Take the right label of an answer of either arm: now, when its copy is answered, or when its pair is found.

        `declared`: its slice; empty: none.
        """
        self._unmatched[id] = label, slices_of(label, TENANT.get(), declared), EVIDENCE.get()
        if pair := self.pairs.take(id):
            self._count_label(id, pair)
            return
        self._unsought.append(id)
        while len(self._unmatched) > LATEST:
            self._unmatched.popitem(last=False)

    async def keep(self, in_thread: Callable[..., Awaitable[Any]]) -> None:
        """Write pairs to disk, and count labels whose pairs are there."""
        unsought, self._unsought = self._unsought, []
        for id, pair in (await self.pairs.exchange(unsought, in_thread)).items():
            self._count_label(id, pair)

    def _count_label(self, id: str, pair: Pair) -> None:
        label, slices, evidence = self._unmatched.pop(id, (None, (), ""))
        if label is not None:
            right = bool(pair.champion == label), bool(pair.challenger == label)
            self.feed(Label(id, *right, pair.seen, slices, tenant=evidence))

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

    async def _copy(self, request: Tried[A], answer: Served[A], seen: Arm) -> None:
        """Have a copy of a request answered by the arm that did not give this answer, and compare both."""
        with to_champion_as_copy() if seen == self._beside() else to_challenger(copy=True):
            other = await self._copied(request)
        if other is not None:
            self._compare(request, *((answer, other) if seen == "champion" else (other, answer)), seen)

    async def _copied(self, request: Tried[A]) -> Served[A] | None:
        """Return the answer to a copy at its end; None if it does not come to it."""
        served = await request.call(self._clock())
        failed = request.ended is not None and await request.ended(served.answer) is not None
        return None if failed else served

    def _compare(self, request: Tried[A], champion: Served[A], challenger: Served[A], seen: Arm) -> None:
        """Compare both answers to a request, of which the client has `seen` one and may label that."""
        known = (champion if seen == "champion" else challenger).observations
        for mine, *both in zip(known, champion.observations, challenger.observations, strict=True):
            if mine is not None and mine.id:
                first, second = (None if each is None else each.label for each in both)
                self.pairs.add(mine.id, Pair(first, second, seen))
                if mine.id in self._unmatched and (pair := self.pairs.take(mine.id)):
                    self._count_label(mine.id, pair)
        self.feed(ShadowCompared(request.id, agree(champion, challenger), tenant=request.tenant))

    def _count_failure(self, request: Tried[A], arm: Arm, error: Exception) -> None:
        """Count a request without an answer. A client's mistake is no arm's fault."""
        reported = api_error_of(error)
        if reported.code in OVERLOAD:
            self._feed_outcome(request, arm, late=True)
        elif reported.status >= 500:
            self._feed_outcome(request, arm, error=True)

    def _feed_outcome(
        self,
        request: Tried[A],
        arm: Arm,
        latency: float | None = None,
        error: bool = False,
        late: bool | None = None,
    ) -> None:
        self.feed(CanaryOutcome(request.id, arm, latency, error, late, request.tenant, request.fair))
