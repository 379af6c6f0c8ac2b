"""The flow: a stage that trains and measures; then gate and publication, as in every system."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

from fifth.config import GateConfig, WordsConfig
from fifth.model import BATCHES, MODEL, WORDS, Task, predict, train
from fifth.scheduler import simulated
from pliant import loads
from pliant.flows import settings
from pliant.flows.champions import champion_artifacts
from pliant.flows.config import configured_class
from pliant.flows.gate import FIRST, Judged, judged, rejection
from pliant.flows.pipeline import Pipeline
from pliant.flows.release import Publication
from pliant.flows.stage import Notes, Stage, StageResult
from pliant.latency import LatencyTable
from pliant.profiling.timer import TimerConfig, measure
from pliant.progress import Progress
from pliant.registry.package import Package
from pliant.report import Report
from pliant.training import texts
from pliant.training.text_data import TextData
from pliant.workload import RequestKind, poisson, requests


class Trained(NamedTuple):
    name: str
    task: StageResult[Task]


def make_task(config: WordsConfig, data: TextData, _progress: Progress) -> tuple[Task, Notes]:
    """Train, then measure how long a launch takes and how often it is right, at every setting."""
    fit, test = ([data.first[row] for row in rows] for rows in (data.split.fit, data.split.test))
    weights = train(fit, data.labels[data.split.fit], len(data.classes))
    timer, right = TimerConfig(budget=0.01), data.labels[data.split.test]
    timed = [[measure(partial(predict, weights, test[:b], w), timer).median for b in BATCHES] for w in WORDS]
    ascending = np.maximum.accumulate(np.maximum.accumulate(timed, 0), 1).tolist()
    accuracy = {words: float((predict(weights, test, words).argmax(1) == right).mean()) for words in WORDS}
    latency = LatencyTable(WORDS, BATCHES, tuple(map(tuple, ascending)))
    return Task(data.name, data.classes, weights, latency, accuracy, configured_class(config)), {}


def depends(config: WordsConfig, data: TextData) -> dict[str, Any]:
    return {"data": data.fingerprint, "device": configured_class(config)}


TASK = Stage(
    "task", Task, make_task, depends, "words/task-{data.name}", "{data.name}: train and measure", measured=True
)


def judge(
    champion: Task | None, challenger: Task, config: GateConfig, load: float, _progress: Progress
) -> Judged[Report]:
    """Replay a load that is too much for all words with both: the challenger may earn no less."""
    rng, rate = np.random.default_rng(0), load * (champion or challenger).latency.throughput(WORDS[-1], BATCHES[-1])
    offered = requests(poisson(rate, 5000 / rate, rng), [RequestKind(challenger.name, 0.1, 1.0)], rng)
    new = simulated(challenger, offered, seed=1)
    if champion is None:
        return judged("", FIRST, new)
    old = simulated(champion, offered, seed=1)
    good, earned = new.utility >= (1 - config.tolerance) * old.utility, f"it earns {new.utility:.0f}"
    worse = rejection(good, earned, f"{old.utility:.0f}")
    return judged(worse, f"{earned}, the champion {old.utility:.0f}", new, old)


class WordsPipeline(Pipeline[WordsConfig, TextData, Trained, Task]):
    system, model, naming = "words", MODEL, ("data",)
    judge = staticmethod(judge)
    device_of = staticmethod(lambda task: task.device)

    def load(self, _progress: Progress) -> list[TextData]:
        return [texts.load(self.config.data, limit=self.config.limit)]

    def make(self, unit: TextData) -> Trained:
        return Trained(unit.name, self.run(TASK, self.config, unit))

    def sides(self, results: Sequence[Trained]) -> Iterator[tuple[Task | None, Task]]:
        champions = champion_artifacts(settings.read(), Task)
        return ((champions.get(result.name), result.task.load()) for result in results)

    def register(self, published: Publication, result: Trained) -> list[str]:
        name, example = MODEL + result.name, {"text": np.array(["a text", "another"])}
        package = Package(name, result.task.folder, example, {"label": np.array(["a", "b"])}, {"words": WORDS[-1]})
        published.register(name, result.task.digest, lambda: package)
        return [name]


def run(args: Namespace) -> None:
    """`pliant simulate words`: a load on the champions' profiles, in virtual time."""
    load = "poisson:1000:5" if args.load == "reference" else args.load
    rng = np.random.default_rng(args.seed)
    times = loads.drawn(load, "poisson:RATE:SECONDS or bursty:RATE:SECONDS", 1_000_000, rng)
    for name, task in champion_artifacts(settings.read(), Task).items():
        offered = requests(times, [RequestKind(name, 0.1, 1.0)], rng)
        result = simulated(task, offered, args.seed)
        Console().print(
            f"{name}: {result.attainment:.1%} in time, accuracy {result.accuracy:.3f}, words {result.settings}"
        )


words = WordsPipeline.flow()
