"""How busy the event loop is, and which requests it still takes in.

A request that the loop cannot handle in time delays every other. While the loop has idle time all requests are taken in
and started. A loop without starts, between two looks at its sockets, as many as their mean cost allows within a small
share of the deadlines that it sees, so that it looks often; as many wait as it can start within a larger share. It sheds
the rest, and those that have waited for longer than such a deadline.

Its share of idle time tells of a flood too late: what is taken in until then is late with all that comes after it. So a
loop that has not idled for a moment sheds, too, as soon as what it has started would take a good part of a deadline of
the processor's time: by the clock a loop that others keep from its core would seem to have costly requests.

The time of a full loop is shared among tenants as a device's seconds are. A tenant that asks again at once waits for the
loop in each of the few turns that an answer takes, so taking turns in starting is not enough: while somebody is there
who has had less, requests of the others are started one at a time, and only when the loop has nothing else to do, or has
started none for a moment. So no time of the loop is lost, and who asks little waits for hardly more than one request of
the others.
"""

from __future__ import annotations

import asyncio
import math
import selectors
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from pliant.fairness import Fairness, FairnessConfig

SLICE = 0.02  # share of the mean deadline that the work between two looks may take: an answer needs about five looks
SHORTEST_SLICE, LONGEST_SLICE = 0.005, 0.05  # seconds between which that is kept
WAIT = 0.1  # share of the mean deadline that a request may wait to be started
SHORTEST_WAIT, LONGEST_WAIT = 0.02, 1.0  # seconds between which that is kept
UNDER_WAY = 0.4  # share of the mean deadline that answering all that is started may take a loop that does not idle
IDLE = 0.05  # share of the time below which a loop counts as saturated
WINDOW = 0.1  # seconds, the time constant of the share of idle time
MEMORY = 0.5  # seconds, the time constant of the other sums
ACCEPTED = 8  # connections, each of which takes the loop about 0.1 ms
HANDSHAKE_SECONDS = 10.0  # of TLS
FEW = 10  # starts that cost nothing count beside those of the memory: a few, or a stall beside them, say little
WAITED = 0.0002  # seconds above which a look at the sockets has waited

Begin = Callable[[], None]
SHARING = FairnessConfig(burst=0.05, slack=0.001, remembered=256, absence=0.2)  # in seconds of the loop
MOMENT = 0.01  # seconds after which a request is started though somebody is there who has had less


class LoopLoad:
    """Measures one event loop. Times are seconds on the loop's clock."""

    def __init__(self) -> None:
        self.earliest = 0.0  # the time after which all has come that is now read from the sockets
        self._looked: float | None = None  # when it returned
        # Seconds of the processor, and requests started, since a look has waited.
        self._worked, self._since_idle = 0.0, 0
        self._idle = 1.0  # share of the latest time
        self._started = 0  # requests since the latest look
        self.rests = False  # whether the latest look and the turn before it brought nothing to do
        self._busy, self._count = 0.0, 0.0  # decaying sums of seconds of work, and of requests started
        self._work, self._used = 0.0, 0.0  # as `_busy`, in seconds of the processor without stalls; and those until now
        self.deadline = 0.5  # seconds from arrival in which requests usually must be answered

    @property
    def cost(self) -> float:
        """Return the mean seconds of the loop per request that is started, whatever else it does meanwhile."""
        return self._busy / self._count if self._count else 0.0

    @property
    def saturated(self) -> bool:
        """Whether the loop has no idle time left."""
        return self._idle < IDLE

    @property
    def pressed(self) -> bool:
        """Whether the loop may be full: it is saturated, or has had work for as long as a request may wait."""
        work = max(self._worked, self._since_idle * self._price)
        return self.saturated or (work > SHORTEST_WAIT and work > self._wait)

    @property
    def retry_after(self) -> float:
        """Return the seconds after which a request that is shed has better prospects."""
        return self._wait * 2

    @property
    def at_once(self) -> int:
        """Return how many requests may be started between two looks."""
        seconds = min(max(SLICE * self.deadline, SHORTEST_SLICE), LONGEST_SLICE)
        return max(1, int(seconds / self.cost)) if self.cost else 1

    def looked(self, began: float, ended: float, events: int = 0, used: float | None = None) -> None:
        """A look at the sockets, from `began` to `ended`, has returned so many events.

        `used`: seconds of the processor that the loop's thread has had until it began; None: as many as have passed.
        """
        last = began if self._looked is None else self._looked
        waited = ended - began > WAITED
        self.earliest = ended if waited else last
        if waited:
            self._worked, self._since_idle = 0.0, 0
        kept = math.exp(-(ended - last) / MEMORY)  # by time: looks may be many, and starts few
        self._busy = kept * self._busy + began - last
        work, self._used = (began - last, self._used) if used is None else (used - self._used, used)
        self._work = kept * self._work + min(work, LONGEST_SLICE)
        self._worked += 0.0 if waited else work
        self._count = kept * self._count + self._started
        weight = math.exp(-(ended - last) / WINDOW)
        share = (ended - began) / (ended - last) if waited else 0.0
        self._idle = weight * self._idle + (1 - weight) * share
        self._started, self._looked = 0, ended
        self.rests = not events and began - last < WAITED

    def is_full(self, waiting: int, age: float, under_way: int = 0) -> bool:
        """Whether the loop turns away a request that came `age` seconds ago, while so many wait to be started.

        `under_way`: those that are started, whose answers have not begun.
        """
        if self.pressed and under_way > 1 and under_way * self._price > UNDER_WAY * self.deadline:
            return True
        too_many = waiting > 0 and (waiting + 1) * self.cost > self._wait
        return self.saturated and (too_many or age > self.deadline)

    def started(self) -> None:
        """A request is started."""
        self._started += 1
        self._since_idle += 1

    @property
    def _price(self) -> float:
        """Return the mean seconds of the processor per request that is started, as far as that is known."""
        return self._work / (self._count + FEW)

    @property
    def _wait(self) -> float:
        """Return the seconds that a request may wait to be started."""
        return min(max(WAIT * self.deadline, SHORTEST_WAIT), LONGEST_WAIT)


class MeasuredSelector(selectors.DefaultSelector):
    """The system's selector, which reports each look at the sockets to a `LoopLoad`."""

    def __init__(self, load: LoopLoad, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._load, self._clock = load, clock

    def select(self, timeout: float | None = None) -> Any:
        began, used = self._clock(), time.thread_time()
        events = super().select(timeout)
        ended = self._clock()
        waits = timeout is None or timeout > 0  # else it was another process that took the time
        self._load.looked(began if waits else ended, ended, len(events), used)
        return events


class MeasuredLoop(asyncio.SelectorEventLoop):
    """An event loop that reports to a `LoopLoad`, and accepts at most `ACCEPTED` connections between two looks.

    asyncio would accept as many as may wait in the system's queue, and handle nothing else meanwhile.
    """

    def __init__(self, load: LoopLoad) -> None:
        super().__init__(MeasuredSelector(load))

    async def create_server(self, *args: Any, backlog: int = 100, **options: Any) -> Any:
        if options.get("ssl") is not None:  # a connection counts from the end of its handshake on
            options.setdefault("ssl_handshake_timeout", HANDSHAKE_SECONDS)
        server = await super().create_server(*args, backlog=min(backlog, ACCEPTED), **options)
        if options.get("sock") is not None:
            options["sock"].listen(backlog)  # the queue itself is as long as asked for
        return server


class Turns:
    """The requests that wait to be started, by tenant, and how many of each are under way."""

    def __init__(self) -> None:
        self._fairness = Fairness(SHARING)
        self._waiting: dict[str, deque[tuple[int, Begin]]] = {}  # of tenants with any: numbers, in their order
        self._count, self._number, self._latest = 0, 0, 0.0
        self._under_way: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._count

    def wait(self, begin: Begin, tenant: str, weight: float) -> None:
        """Let a request wait for its turn."""
        self._fairness.join(self._number, tenant, weight)
        self._waiting.setdefault(tenant, deque()).append((self._number, begin))
        self._number, self._count = self._number + 1, self._count + 1

    def take(self, most: int, cost: float, idle: bool, now: float) -> list[Begin]:
        """Return those that are started now, at most so many.

        `cost`: seconds of the loop that each will take; `idle`: whether the loop has nothing else to do.
        """
        taken: list[Begin] = []
        while self._count and len(taken) < most:
            turn, behind = self._fairness.turn(), self._fairness.behind()
            names = self._waiting if turn is None else turn
            name = min(names, key=lambda name: self._waiting[name][0][0])  # the first that came
            ahead = behind is not None and name not in behind
            if ahead and (taken or not (idle or now - self._latest >= MOMENT)):
                break
            taken.append(self._take(name, cost))
            self._latest = now
            if ahead:
                break
        return taken

    def _take(self, name: str, cost: float) -> Begin:
        queue = self._waiting[name]
        number, begin = queue.popleft()
        if not queue:
            del self._waiting[name]
        self._count -= 1
        self._fairness.launch(number, [number], cost)
        self._fairness.ended(number)
        return begin

    def begun(self, tenant: str) -> None:
        """A request of the tenant is under way."""
        self._under_way[tenant] += 1

    def ended(self, tenant: str) -> None:
        """The answer to one that was has begun, or its client has left."""
        self._under_way[tenant] -= 1
        if not self._under_way[tenant]:
            del self._under_way[tenant]

    def before(self, tenant: str) -> tuple[int, int]:
        """Return how many requests wait, and are under way, as far as they delay a further one of this tenant.

        These are its own, at the share of the loop that is its own, but no more than all are.
        """
        if not self._fairness.contended:
            return self._count, self._under_way.total()
        share = self._fairness.share({tenant}) or 1.0
        waiting, under_way = len(self._waiting.get(tenant, ())), self._under_way[tenant]
        return min(self._count, round(waiting / share)), min(self._under_way.total(), round(under_way / share))
