"""What the control logic costs a request of 32 tokens: importance, routing and pruning, the ensemble, and dispatch.

Every request takes the long way: the small model with importance, words pruned by kept mass, the large model, both answers
weighed. Each step is timed where the service runs it: importance as what it adds to the small model's run on the device,
the others in the process of the event loop. Requests run one after the other.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import cycle
from pathlib import Path

import numpy as np

from benchmarks.cascade.contest import halves, plan
from benchmarks.cascade.study import Latencies, Study, held_out, material
from benchmarks.results import Target
from benchmarks.timing import seconds_of
from pliant.cascade.artifact import Candidate, Cascade, Gate, Pruning
from pliant.cascade.evaluate import subset
from pliant.cascade.frontier import ALWAYS
from pliant.cascade.knowledge import knowledge
from pliant.cascade.runtime import CascadeRuntime
from pliant.cascade.scheduler import CascadeScheduler
from pliant.cascade.search import DOUBT_WEIGHTS
from pliant.device import threads
from pliant.models.artifact import Classifier
from pliant.models.text import Reader
from pliant.progress import Progress, silent
from pliant.protocol import Arrived, Finished, Launch, Request, Result
from serving.cascade.catalog import ServedLevel, ServedTask
from serving.cascade.reading import Handler, begin, handler_of

TOKENS, ROUNDS, WARM = 32, 400, 20
LIMIT = 1e-3  # seconds
HEADINGS = ("step", "microseconds")


@dataclass(frozen=True, slots=True)
class Control:
    """Median seconds of one request. `total` is what importance adds and the median of the other steps' sums."""

    importance: float  # what it adds to the small model's run
    routing: float  # calibrate, foresee the gain, prune, read what is left for the large model
    ensemble: float  # weigh both answers
    dispatch: float  # the scheduler's three events: the arrival and the end of both launches
    total: float

    def target(self) -> Target:
        return Target("control logic of a request of 32 tokens, median", 1e3 * self.total, "<=", 1e3 * LIMIT, "ms")

    def table(self) -> list[tuple[str, str]]:
        """Return the cells under HEADINGS."""
        return [(field.name, f"{1e6 * getattr(self, field.name):.0f}") for field in fields(self)]


def measure(study: Study, measured: Latencies, progress: Progress = silent) -> Control:
    """Time `ROUNDS` requests on one thread, of which the first `WARM` do not count."""
    cascade = long_way(study, measured)
    handler = handler_of(ServedTask(cascade, 1, "", tuple(map(_served, study.classifiers))))
    scheduler, rows = CascadeScheduler(knowledge([cascade])), []
    runtime = CascadeRuntime({0: study.classifiers[0], 1: study.classifiers[-1]}, "cpu")
    with threads(1):
        for number, text in enumerate(texts(study)):
            rows.append([*_answer(handler, runtime, text), _dispatch(scheduler, cascade.task, number)])
            progress(number + 1, ROUNDS)
    plain, watched, *others = np.array(rows)[WARM:].T
    added = max(0.0, float(np.median(watched - plain)))
    total = added + float(np.median(np.sum(others, axis=0)))
    routing, ensemble, dispatch = (float(np.median(seconds)) for seconds in others)
    return Control(added, routing, ensemble, dispatch, total)


def long_way(study: Study, measured: Latencies) -> Cascade:
    """Return the task with one candidate: every text is pruned and goes on to the large model, and both answers count."""
    planning, judging = halves(len(study.outputs.labels), 0)
    cascade = plan(material(study, measured), subset(study.outputs, planning), 0, 0.01, len(judging))
    gate = Gate("gain", ALWAYS, weights=DOUBT_WEIGHTS, pruning=Pruning("mass", 0.9), weight=0.7)
    candidate = Candidate("long way", (0, len(cascade.levels) - 1), (gate,), 0, 0, 0, (1.0, 1.0))
    return replace(cascade, candidates=(candidate,))


def _served(classifier: Classifier) -> ServedLevel:
    return ServedLevel(Path(), 1, "", classifier.tokenizer, classifier.max_length)


def texts(study: Study) -> Iterator[str]:
    """Give `ROUNDS` texts of 32 tokens, strung together word by word from held-out ones."""
    reader, held = Reader(study.classifiers[0].tokenizer, TOKENS), study.data.texts(held_out(study.data))
    words = (word for text, _ in cycle(held) for word in text.split())
    for _ in range(ROUNDS):
        text = next(words)
        while len(reader.read(text).ids) < TOKENS:
            text += " " + next(words)
        yield text


def _answer(handler: Handler, runtime: CascadeRuntime, text: str) -> list[float]:
    """Return the seconds of the small model's run without and with importance, of routing, and of the ensemble."""
    request = begin(handler, 0, text, None, lambda: 0.0)
    plain, watched = (runtime.run(0, [request.payload], importance) for importance in (False, True))
    start = time.perf_counter()
    request.take(watched.logits[0])
    request.prepare_next(watched.importance[0] if watched.importance else None)
    routing = time.perf_counter() - start
    large = runtime.run(1, [request.payload])
    return [plain.seconds, watched.seconds, routing, seconds_of(partial(request.take, large.logits[0]))]


def _dispatch(scheduler: CascadeScheduler, task: str, number: int) -> float:
    """Return the seconds that the scheduler takes for one request on its whole way."""
    now, start = float(number), time.perf_counter()
    actions = scheduler.handle(Arrived(Request(number, now, now + 0.5, task, length=TOKENS)), now)
    for gain in (0.3, None):
        (launch,) = (action for action in actions if isinstance(action, Launch))
        now += 0.01
        actions = scheduler.handle(Finished(launch.id, 0.01, (Result(number, gain=gain, length=TOKENS),)), now)
    return time.perf_counter() - start
