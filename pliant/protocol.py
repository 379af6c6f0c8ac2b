"""The contract between a scheduler and whoever drives it. One scheduler, two clocks.

A scheduler is a synchronous state machine: it reads no clock, draws no random number, logs nothing and awaits nothing.
Predictions, confidences and measured durations reach it as data, on a request or in a result. `pliant/simulator.py` drives
it in virtual time and `serving/driver.py` on the event loop's clock; both write the same journal, and
`replay(fresh_scheduler, journal)` must give that journal again.

Times are seconds on the driver's clock, deadlines included. Knows nothing of images, text, models or devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Request:
    """One question to be answered before `deadline`; worth `utility` if it is answered correctly by then.

    `length` is its size in tokens (0: of no account), `setting` the way it is to be served where its client has a choice
    (cascade: the number of a candidate).
    """

    id: int
    arrival: float
    deadline: float
    task: str
    utility: float = 1.0
    length: int = 0
    setting: int = 0


@dataclass(frozen=True, slots=True)
class Result:
    """What a launch found out about one request, as far as a scheduler or a report may use it.

    `correct` is None where nobody knows the label (in production). `gain` is what a further launch is expected to add to
    the probability of a correct answer (cascade: by the next level; None: this answer suffices), `length` the tokens
    that such a launch would read.
    """

    request: int
    correct: bool | None = None
    gain: float | None = None
    length: int = 0


@dataclass(frozen=True, slots=True)
class Arrived:
    request: Request


@dataclass(frozen=True, slots=True)
class Finished:
    """A launch ended well after `seconds` on its worker; one result a request, in the launch's order."""

    launch: int
    seconds: float
    results: tuple[Result, ...] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """A launch ended without results; its worker must be restarted before it can be used again."""

    launch: int
    reason: str


@dataclass(frozen=True, slots=True)
class Woke:
    """The time that `wake_at` asked for has come."""


@dataclass(frozen=True, slots=True)
class Changed:
    """What is known of tasks and devices is replaced from now on: a task registered, a new profile, a new champion.

    `facts` holds plain JSON values alone, so that it stands in a journal; each system says what it takes. Launches that
    run are not touched. Raises `InputError` from `handle`, before anything has changed, for facts that do not fit.
    """

    facts: Mapping[str, Any]


Event = Arrived | Finished | Failed | Woke | Changed


@dataclass(frozen=True, slots=True)
class Launch:
    """Occupy `worker` until a `Finished` or `Failed` with this id: a batch, a restart, whatever takes a device's time.

    `setting` is the system's knob (tokens: gamma; cascade: the number of the model). `kind` is "run", "restart" or "load"
    (the worker loads another model, number `setting`); the latter two carry no requests.
    """

    id: int
    worker: int
    requests: tuple[int, ...] = ()
    setting: int = 0
    kind: str = "run"


@dataclass(frozen=True, slots=True)
class Answer:
    """Give the request the output that launch `launch` made for it.

    `reason` says why it must do although a further launch would have been wanted; empty where none was.
    """

    request: int
    launch: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Drop:
    """Give the request no output. Reasons: see `DROP_REASONS`."""

    request: int
    reason: str


DROP_REASONS = {
    "late": "no plan serves it before its deadline",
    "full": "as many requests wait as may",
    "failed": "its worker failed, and no time or no attempt is left",
}

ANSWER_REASONS = {
    "late": "the next level would not have answered before the deadline",
    "full": "as many requests wait as may",
    "failed": "the next level's worker failed, and no time or no attempt is left",
}

Action = Launch | Answer | Drop


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One call of `handle`: when, what came, what was decided."""

    now: float
    event: Event
    actions: tuple[Action, ...]


Journal = list[JournalEntry]


class Scheduler(Protocol):
    def handle(self, event: Event, now: float) -> list[Action]:
        """Take one event in and give the actions it causes. `now` never goes back between calls."""

    def wake_at(self) -> float | None:
        """When to send `Woke` if nothing else happens before; None for never. After `Woke` it must lie later."""

    def check(self) -> None:
        """Raise AssertionError if the books do not balance (tests call it after every event)."""


def replay(scheduler: Scheduler, journal: Iterable[JournalEntry]) -> Journal:
    """Feed a journal's events to a fresh scheduler at their times. Equal to the journal, or the scheduler is impure."""
    return [JournalEntry(e.now, e.event, tuple(scheduler.handle(e.event, e.now))) for e in journal]
