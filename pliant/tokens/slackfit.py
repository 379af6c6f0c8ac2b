"""SlackFit (Khare et al., SuperServe, NSDI 2025): a baseline.

As published: requests wait by deadline. Beforehand the tuples (setting, batch size) are divided by their seconds into evenly
spaced buckets. Whenever a device becomes free, the slack of the earliest deadline chooses the highest bucket that fits, and
in it the tuple of the greatest batch is taken. Buckets of few seconds hold small batches of fast settings, those of many
also large batches of accurate ones, so a queue that falls behind, whose slack shrinks, takes faster settings. Rates,
utilities and the length of the queue play no part.

What the paper leaves open is filled by the strongest reading (docs/log/tokens.md):

- Buckets: 4, which earned most of 1 to 64. Of a bucket that the slack divides the tuples within the slack are taken.
- A tuple of a greater batch than waits counts as one of all that wait; among equals the most accurate is taken (mean over
  the tasks).
- Requests that cannot be in time are dropped. So are the first ones while more wait than an efficient launch takes and there
  is no time for one: served by single launches they would make all others late, too, and more so on a device whose
  launches have a price of their own, such as a GPU.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from pliant.protocol import Request
from pliant.tokens.scheduler import Decision, Knowledge, PoolState, check_tasks


@dataclass(frozen=True, slots=True)
class SlackFitConfig:
    """What the tuples are, and what is dropped."""

    buckets: int = 4
    max_batch: int = 64  # requests
    efficiency: float = 0.9  # share of the most requests/s from which on a launch is efficient; 0: all are


class SlackFitPolicy:
    """A policy (see scheduler.py). Shape suffix: T tuples, by setting and then by batch."""

    fair = False

    def __init__(self, knowledge: Knowledge, config: SlackFitConfig | None = None) -> None:
        self._config = config or SlackFitConfig()
        self._requests: dict[int, Request] = {}
        self._waiting: list[tuple[float, int]] = []  # deadline and id, ascending
        self._set_knowledge(knowledge)

    def _set_knowledge(self, knowledge: Knowledge) -> None:
        most, settings = self._config.max_batch, knowledge.latency.settings
        self._knowledge = knowledge
        self._batch_T = np.tile(np.arange(1, most + 1), len(settings))
        self._seconds_T = knowledge.seconds(most)[:, 1:].ravel()
        shares = [sum(task[setting] for task in knowledge.accuracy.values()) for setting in settings]
        self._accuracy_T = np.repeat(shares, most)
        self._fastest = float(self._seconds_T.min())
        edges = np.linspace(self._fastest, self._seconds_T.max(), self._config.buckets + 1)[1:-1]
        self._bucket_T = edges.searchsorted(self._seconds_T)
        rate_T = self._batch_T / self._seconds_T
        efficient_T = rate_T >= self._config.efficiency * rate_T.max()
        self._efficient = int(np.where(efficient_T, self._seconds_T, np.inf).argmin())

    @property
    def knowledge(self) -> Knowledge:
        return self._knowledge

    def learn(self, knowledge: Knowledge) -> None:
        check_tasks(knowledge, (request.task for request in self._requests.values()))
        self._set_knowledge(knowledge)

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, request: Request, now: float, again: bool = False) -> None:
        del now, again
        check_tasks(self._knowledge, (request.task,))
        insort(self._waiting, (request.deadline, request.id))
        self._requests[request.id] = request

    def cancel(self, request: int) -> None:
        self._waiting.remove((self._requests.pop(request).deadline, request))

    def expire(self, now: float, slowdown: float) -> list[int]:
        late = bisect_left(self._waiting, True, key=lambda entry: self._latest(entry[0], slowdown) > now)
        return [request.id for request in self._take(late)]

    def wake_at(self, slowdown: float) -> float | None:
        return self._latest(self._waiting[0][0], slowdown) if self._waiting else None

    def _latest(self, deadline: float, slowdown: float) -> float:
        """Return the time from which on not even the fastest launch would be in time."""
        return deadline - self._fastest * slowdown

    def _take(self, count: int) -> list[Request]:
        """Remove the requests of the earliest deadlines and return them."""
        taken = [self._requests.pop(request) for _, request in self._waiting[:count]]
        del self._waiting[:count]
        return taken

    def lost(self, worker: int) -> None: ...

    def decide(self, pool: PoolState, now: float) -> Decision:
        batch, seconds = int(self._batch_T[self._efficient]), float(self._seconds_T[self._efficient])
        waste = bisect_left(self._waiting, (now + seconds * pool.slowdown,), hi=max(len(self._waiting) - batch, 0))
        dropped = tuple(request.id for request in self._take(waste))
        setting, most = self.choose((self._waiting[0][0] - now) / pool.slowdown, len(self._waiting))
        run = tuple(self._take(most))
        return Decision(run, setting, self._knowledge.at(setting, len(run)), dropped)

    def choose(self, slack: float, waiting: int) -> tuple[int, int]:
        """Return setting and batch size for a slack in seconds of the profile, when so many requests wait.

        Where nothing fits the slack it is a single request at the fastest setting.
        """
        fits_T = self._seconds_T <= max(slack, self._fastest)
        fits_T &= self._bucket_T == self._bucket_T[fits_T].max()
        tuples = fits_T.nonzero()[0]
        keys = -self._seconds_T[tuples], self._accuracy_T[tuples], np.minimum(self._batch_T[tuples], waiting)
        best = int(tuples[np.lexsort(keys)[-1]])
        return self._knowledge.latency.settings[best // self._config.max_batch], int(self._batch_T[best])

    def ids(self) -> Iterable[int]:
        return self._requests.keys()

    def check(self) -> None:
        assert sorted((r.deadline, r.id) for r in self._requests.values()) == self._waiting
