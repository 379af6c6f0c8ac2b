"""Computes the figures of a journal: utility, tail latency, SLO attainment, goodput, outcomes by type.

Simulations, benchmarks and production all use it. A load generator, which sees only the client's side, makes
`Observation`s itself and calls `summarise`. Outcome types are those of OTAS, section 5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from pliant.protocol import Answer, Arrived, Cancelled, Drop, Finished, JournalEntry, Launch, Request


@dataclass(frozen=True, slots=True)
class Observation:
    """What became of one request. It is either answered, dropped or cancelled, or it still waits."""

    request: Request
    answered: float | None = None  # time, on the clock of its deadline
    correct: bool | None = None  # None: the label is unknown
    setting: int | None = None
    batch: int | None = None  # size of the batch that answered it
    dropped: str | None = None  # the reason
    cancelled: bool = False  # its client left before the answer

    @property
    def outcome(self) -> str:
        """Return accurate, wrong or unlabelled (answered in time), late, evicted (dropped), cancelled or waiting."""
        if self.cancelled:
            return "cancelled"
        if self.dropped is not None:
            return "evicted"
        if self.answered is None:
            return "waiting"
        if self.answered > self.request.deadline:
            return "late"
        return {True: "accurate", False: "wrong", None: "unlabelled"}[self.correct]


@dataclass(frozen=True, slots=True)
class Report:
    """Figures of a set of requests. Latencies are in seconds; NaN if nothing was answered."""

    requests: int
    offered: float  # sum of all utilities
    utility: float  # sum over requests answered correctly in time
    outcomes: Mapping[str, int]  # OTAS's four types, and `unlabelled`, `waiting`, `cancelled`
    drops: Mapping[str, int]  # reason -> evicted requests
    attainment: float  # share of the requests answered in time, of all whose clients stayed
    accuracy: float  # share of labelled answers that were correct, in time or not; NaN without labels
    goodput: float  # correct answers in time per second
    p50: float
    p98: float
    p99: float
    settings: Mapping[int, int]  # setting (tokens: gamma) -> answered requests
    batch: float  # mean batch size that an answered request saw; NaN if unknown


def observations(journal: Iterable[JournalEntry]) -> list[Observation]:
    """Return one observation for each request, in order of arrival."""
    requests: dict[int, Request] = {}
    fates: dict[int, Observation] = {}
    launches: dict[int, Launch] = {}
    correct: dict[tuple[int, int], bool | None] = {}  # (launch, request) -> whether its output is correct
    for entry in journal:
        if isinstance(entry.event, Arrived):
            requests[entry.event.request.id] = entry.event.request
        if isinstance(entry.event, Cancelled):
            fates[entry.event.request] = Observation(requests[entry.event.request], cancelled=True)
        if isinstance(entry.event, Finished):
            correct |= {(entry.event.launch, result.request): result.correct for result in entry.event.results}
        for action in entry.actions:
            match action:
                case Launch():
                    launches[action.id] = action
                case Answer(request, launch, _):
                    ran = launches[launch]
                    fates[request] = Observation(
                        requests[request], entry.now, correct.get((launch, request)), ran.setting, len(ran.requests)
                    )
                case Drop(request, reason):
                    fates[request] = Observation(requests[request], dropped=reason)
    return [fates.get(i, Observation(request)) for i, request in requests.items()]


def report(journal: Iterable[JournalEntry]) -> Report:
    """Return the figures of a whole journal."""
    return summarise(observations(journal))


def summarise(observed: Iterable[Observation]) -> Report:
    """Return the figures of any set of observations, such as one half of a load."""
    seen = list(observed)
    outcomes = Counter(o.outcome for o in seen)
    latencies = [o.answered - o.request.arrival for o in seen if o.answered is not None]
    labels = [o.correct for o in seen if o.answered is not None and o.correct is not None]
    batches = [o.batch for o in seen if o.batch is not None]
    ends = [o.request.arrival if o.answered is None else max(o.request.arrival, o.answered) for o in seen]
    span = max(max(ends) - min(o.request.arrival for o in seen), 1e-9) if seen else 1.0  # seconds
    stayed = len(seen) - outcomes["cancelled"]
    in_time = outcomes["accurate"] + outcomes["wrong"] + outcomes["unlabelled"]
    return Report(
        requests=len(seen),
        offered=sum(o.request.utility for o in seen),
        utility=sum(o.request.utility for o in seen if o.outcome == "accurate"),
        outcomes=dict(sorted(outcomes.items())),
        drops=dict(sorted(Counter(o.dropped for o in seen if o.dropped is not None).items())),
        attainment=in_time / stayed if stayed else float("nan"),
        accuracy=float(np.mean(labels)) if labels else float("nan"),
        goodput=outcomes["accurate"] / span,
        p50=_quantile(latencies, 0.50),
        p98=_quantile(latencies, 0.98),
        p99=_quantile(latencies, 0.99),
        settings=dict(sorted(Counter(o.setting for o in seen if o.setting is not None).items())),
        batch=float(np.mean(batches)) if batches else float("nan"),
    )


def _quantile(values: list[float], share: float) -> float:
    return float(np.quantile(values, share)) if values else float("nan")
