"""The contract between a scheduler and its driver: one scheduler for two clocks, virtual and real.

A scheduler is a synchronous state machine: it reads no clock, draws no random number, logs nothing and awaits nothing.
Predictions, confidences and measured durations reach it as data, on a request or in a result. `pliant/simulator.py`
drives it in virtual time and `serving/driver.py` on the event loop's clock; both write the same journal, and
`replay(fresh_scheduler, journal)` must give that journal again.

Times are seconds on the driver's clock, deadlines included. Knows no images, texts, models or devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Request:
    """A request to answer before `deadline`. It is worth `utility` if it is answered correctly by then.

    `length` is its size in tokens, or 0 in systems where it does not matter. `setting` is how to serve it where its
    client can choose (cascade: the number of a candidate). `tenant` is who pays for it (empty: nobody is named), and
    `weight` the tenant's share of the devices relative to the other tenants'.
    """

    id: int
    arrival: float
    deadline: float
    task: str
    utility: float = 1.0
    length: int = 0
    setting: int = 0
    tenant: str = ""
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one request in a launch, as far as schedulers and reports need it.

    `correct` is None if the label is unknown, as in production. `gain` is what a further launch is expected to add to
    the probability of a correct answer (cascade: the next level; None: this answer suffices), and `length` the tokens
    that it would read.
    """

    request: int
    correct: bool | None = None
    gain: float | None = None
    length: int = 0


@dataclass(frozen=True, slots=True)
class Arrived:
    """A request has come in."""

    request: Request


@dataclass(frozen=True, slots=True)
class Finished:
    """A launch has succeeded after `seconds` on its worker, with one result for each request, in the launch's order."""

    launch: int
    seconds: float
    results: tuple[Result, ...] = ()


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The client of a request that is not answered yet has left. No action may name the request from now on.

    A launch that carries the request goes on, for the others in it; what it gives this request is thrown away.
    """

    request: int


@dataclass(frozen=True, slots=True)
class Failed:
    """A launch has ended without results.

    `lost`: its worker is gone, and must be restarted before it is used again. Otherwise only the requests are to blame:
    the model raised an error, and the worker is free.
    """

    launch: int
    reason: str
    lost: bool = True


@dataclass(frozen=True, slots=True)
class Woke:
    """The time that `wake_at` asked for has come."""


@dataclass(frozen=True, slots=True)
class Changed:
    """What is known of tasks and devices changes from now on: a new task, a new profile, a new champion.

    `facts` holds plain JSON values, so that a journal can record it; each system defines its own. Running launches go
    on. For facts that do not fit, `handle` raises `InputError` before anything has changed.
    """

    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Limited:
    """A device has lacked memory. From now on at most `batch` requests of a launch at this setting run at once.

    More of them run one part after the other. A scheduler that chooses no sizes of batches may ignore it.
    """

    setting: int
    batch: int


@dataclass(frozen=True, slots=True)
class Restarted:
    """The scheduler has raised an error, and a fresh one takes its place. Only journals hold this: nobody handles it.

    Actions of its entry were taken by the driver. What is pending follows as `Changed` and `Arrived`; launches are
    numbered from 0 again, and those of the former scheduler are forgotten.
    """

    reason: str


Event = Arrived | Finished | Failed | Cancelled | Woke | Changed | Limited | Restarted


@dataclass(frozen=True, slots=True)
class Launch:
    """Occupy `worker` until a `Finished` or `Failed` with this id: a batch, a restart, whatever takes a device's time.

    A scheduler may give a worker its next batch while one runs. It begins when that one ends, and fails with it where the
    worker is lost.

    `setting` is what the system chooses for a launch (tokens: gamma; cascade: the number of the model). `kind` is
    "run", "restart" or "load" (the worker loads another model, number `setting`); the latter two carry no requests.
    `expected` is how many seconds the scheduler thinks that it takes; 0: it does not know.
    """

    id: int
    worker: int
    requests: tuple[int, ...] = ()
    setting: int = 0
    kind: str = "run"
    expected: float = 0.0


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer the request with the output of `launch`.

    `reason` says why no further launch follows although one was wanted (as `Drop` has it); else it is empty.
    """

    request: int
    launch: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Drop:
    """Give the request no output.

    `reason`: "late" (no plan serves it before its deadline), "full" (as many requests wait as may) or "failed" (its
    worker failed, and no time or no attempt is left).
    """

    request: int
    reason: str


Action = Launch | Answer | Drop


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One call of `handle`: its time, its event, and the actions that it returned."""

    now: float
    event: Event
    actions: tuple[Action, ...]


Journal = list[JournalEntry]


class Scheduler(Protocol):
    """What a driver needs of a scheduler."""

    def handle(self, event: Event, now: float) -> list[Action]:
        """Take one event and return the actions that it causes. `now` never goes back."""

    def wake_at(self) -> float | None:
        """Return when to send `Woke` if nothing happens before, or None. After a `Woke` it must be later than that."""

    def check(self) -> None:
        """Raise AssertionError if the state contradicts itself (tests call this after every event)."""


def replay(scheduler: Scheduler, journal: Iterable[JournalEntry]) -> Journal:
    """Feed a journal's events to a fresh scheduler at their times. A pure scheduler gives the same journal."""
    entries = list(journal)
    fresh = deepcopy(scheduler) if any(isinstance(entry.event, Restarted) for entry in entries) else scheduler
    replayed: Journal = []
    for entry in entries:
        if isinstance(entry.event, Restarted):
            scheduler, actions = deepcopy(fresh), entry.actions
        else:
            actions = tuple(scheduler.handle(entry.event, entry.now))
        replayed.append(JournalEntry(entry.now, entry.event, actions))
    return replayed
