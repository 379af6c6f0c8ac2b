"""What the control logic costs a request: importance, dispatch, routing and pruning, ensemble, for texts of 32 tokens.

Every request takes the long way: the small model with importance, words pruned by kept mass, the large model, both answers
weighed. Each part is timed where the service runs it: importance as what it adds to the small model's run on the device,
the rest in the process of the event loop.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import cycle
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.cascade.contest import halves, plan
from benchmarks.cascade.study import Latencies, Study, material
from benchmarks.results import Target
from pliant.cascade.artifact import Candidate, Cascade, Gate, Pruning
from pliant.cascade.evaluate import subset
from pliant.cascade.frontier import ALWAYS
from pliant.cascade.knowledge import knowledge
from pliant.cascade.runtime import CascadeRuntime
from pliant.cascade.scheduler import CascadeScheduler
from pliant.cascade.search import DOUBT
from pliant.device import threads
from pliant.models.text import Reader
from pliant.progress import Progress, silent
from pliant.protocol import Arrived, Finished, Launch, Request, Result
from serving.cascade.catalog import ServedLevel, ServedTask
from serving.cascade.reading import Way, begin, way

TOKENS, ROUNDS, WARM = 32, 400, 20
LIMIT = 1e-3


@dataclass(frozen=True, slots=True)
class Control:
    """Median seconds of one request; `total` is what importance adds and the median of the others' sums."""

    importance: float  # what it adds to the small model's run
    routing: float  # calibrate, foresee the gain, prune, read the rest for the large model
    ensemble: float  # both answers in one
    dispatch: float  # the scheduler: arrival, both ends, both launches
    total: float

    def bar(self) -> Target:
        return Target("control logic of a request of 32 tokens, median", 1e3 * self.total, "<=", 1e3 * LIMIT, "ms")

    def rows(self) -> list[tuple[str, str]]:
        return [(field.name, f"{1e6 * getattr(self, field.name):.0f}") for field in fields(self)]


def measure(study: Study, measured: Latencies, progress: Progress = silent) -> Control:
    """One request at a time, the rounds after one another; what importance adds is taken from runs in turns."""
    cascade = _long_way(study, measured)
    served, scheduler = _served(study, cascade), CascadeScheduler(knowledge([cascade]))
    small, large = (CascadeRuntime({0: one}, "cpu") for one in (study.classifiers[0], study.classifiers[-1]))
    rows = []
    with threads(1):
        for number, text in enumerate(_texts(study)):
            rows.append(
                [
                    *_device(small, served, text),
                    *_front(served, small, large, text),
                    _dispatch(scheduler, cascade.task, number),
                ]
            )
            progress(number + 1, ROUNDS)
    plain, asked, *others = np.array(rows)[WARM:].T
    added = max(0.0, float(np.median(asked - plain)))
    total = added + float(np.median(np.sum(others, axis=0)))
    routing, ensemble, dispatch = (float(np.median(one)) for one in others)
    return Control(added, routing, ensemble, dispatch, total)


def _long_way(study: Study, measured: Latencies) -> Cascade:
    """The task with one candidate: every text is pruned and goes on to the large model, and both count."""
    first, second = halves(len(study.outputs.labels), 0)
    cascade = plan(material(study, measured), subset(study.outputs, first), 0, 0.01, len(second))
    gate = Gate("gain", ALWAYS, weights=DOUBT, pruning=Pruning("mass", 0.9), weight=0.7)
    candidate = Candidate("long way", (0, len(cascade.levels) - 1), (gate,), 0, 0, 0, (1.0, 1.0))
    return replace(cascade, candidates=(candidate,))


def _served(study: Study, cascade: Cascade) -> Way:
    levels = tuple(ServedLevel(Path(), 1, "", one.tokenizer, one.max_length) for one in study.classifiers)
    return way(ServedTask(cascade, 1, "", levels))


def _texts(study: Study) -> Iterator[str]:
    """Held-out texts strung together word by word until there are 32 tokens."""
    reader = Reader(study.classifiers[0].tokenizer, TOKENS)
    words = (word for first, _ in cycle(study.texts) for word in first.split())
    for _ in range(ROUNDS):
        text = next(words)
        while len(reader.read(text).ids) < TOKENS:
            text += " " + next(words)
        yield text


def _device(runtime: CascadeRuntime, served: Way, text: str) -> Sequence[float]:
    """Seconds of the small model's run without and with importance."""
    payload = [begin(served, 0, text, None, _zero).payload]
    return [runtime.run(0, payload, importance).seconds for importance in (False, True)]


def _front(served: Way, small: CascadeRuntime, large: CascadeRuntime, text: str) -> Sequence[float]:
    """Seconds of routing and pruning after the small model, and of the ensemble after the large one."""
    asked = begin(served, 0, text, None, _zero)
    first = small.run(0, [asked.payload], True)
    importance: list[NDArray[np.float32]] = first.importance or []
    started = time.perf_counter()
    asked.take(first.logits[0])
    asked.go_on(importance[0])
    routed = time.perf_counter() - started
    second = large.run(0, [asked.payload], False)
    started = time.perf_counter()
    asked.take(second.logits[0])
    return [routed, time.perf_counter() - started]


def _dispatch(scheduler: CascadeScheduler, task: str, number: int) -> float:
    """Seconds that the scheduler takes for one request on its whole way."""
    now = float(number)
    started = time.perf_counter()
    for level in range(2):
        if level == 0:
            actions = scheduler.handle(Arrived(Request(number, now, now + 0.5, task, length=TOKENS)), now)
        (launch,) = (action for action in actions if isinstance(action, Launch))
        result = Result(number, gain=0.3 if level == 0 else None, length=TOKENS)
        now += 0.01
        actions = scheduler.handle(Finished(launch.id, 0.01, (result,)), now)
    return time.perf_counter() - started


def _zero() -> float:
    return 0.0
