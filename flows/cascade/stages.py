"""The stages of the cascade flow: levels -> outputs -> latencies -> plan, per task. Knows no Prefect and no MLflow.

Labelled answers of a service, where the settings name them, take the place of old texts (flows/cascade/feedback.py).

Shape suffixes: R texts.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from typing import ClassVar

import numpy as np

import pliant.cascade.evaluate
import pliant.cascade.plan
import pliant.profiling.cascade.latency
import pliant.profiling.cascade.outputs
import pliant.training.classifier
import pliant.training.linear
import pliant.training.loading
import pliant.training.starts
import pliant.training.texts
from pliant.cascade.artifact import Cascade, Outputs
from pliant.cascade.plan import tolerance_of
from pliant.device import device_class, threads
from pliant.errors import ArtifactError, InputError
from pliant.flows.arithmetic import chosen, half_of
from pliant.flows.cascade import feedback
from pliant.flows.cascade.config import CascadeFlowConfig, LevelConfig
from pliant.flows.config import check_distinct, check_name, configured_class
from pliant.flows.progress import tell
from pliant.flows.stage import Notes, Run, Stage, StageResult, contents
from pliant.latency import LatencyTable
from pliant.models.artifact import Classifier
from pliant.progress import Progress, share
from pliant.training.linear import LinearComparison
from pliant.training.text_data import TextData

SPLITS = ("profiling", "test")


@dataclass(frozen=True, slots=True)
class Latencies:
    """A stage's result alone: what the plan and the published cascade take over."""

    KIND: ClassVar[str] = "cascade-latencies"
    SCHEMA: ClassVar[int] = 1

    device: str  # device class
    plain: tuple[LatencyTable, ...]  # one a level
    importance: tuple[LatencyTable | None, ...]
    precision: str = "float32"  # in which they were measured


@dataclass(frozen=True, slots=True)
class Texts:
    """A task's data set, and the labelled texts of a service that are pooled with it."""

    data: TextData
    lessons: TextData | None = None


@dataclass(frozen=True, slots=True)
class TaskData:
    """A task's levels, data set and address."""

    levels: tuple[LevelConfig, ...]
    data: TextData
    address: str

    @property
    def name(self) -> str:
        return self.data.name


Levels = Mapping[str, StageResult[Classifier]]
"""What was trained, by name, ascending in size."""


@dataclass(frozen=True, slots=True)
class TaskResults:
    """All stages' results of one task."""

    name: str
    texts: Texts  # that the outputs are of
    levels: Levels
    outputs: StageResult[Outputs]  # on the profiling split
    test: StageResult[Outputs]  # on the test split
    latencies: StageResult[Latencies]
    plan: StageResult[Cascade]
    linear: StageResult[LinearComparison]  # the last level beside a linear model, on the data set's own test split
    float32: tuple[StageResult[Outputs], ...] = ()  # both in float32, where `outputs` and `test` are in half precision
    arithmetic: str = ""  # a sentence on why the plan has its precision; empty where there was no choice


def load_data(config: CascadeFlowConfig) -> list[TextData]:
    """Return one data set a task. Raises `InputError` for too few texts, and for two tasks of one name."""
    loaded = [
        pliant.training.texts.load(task.data, task.name, config.seed, task.limit, task.shares, task.columns)
        for task in config.tasks
    ]
    for data in loaded:  # before anything is trained
        tell(data.name, data.repeats)
        check_name("name of a task", data.name)  # a file's or a data set's name may have given it
        if len(data.split.profiling) < pliant.cascade.plan.LEAST_TEXTS:
            raise InputError(
                f"texts of {data.name} to plan with",
                len(data.split.profiling),
                f"at least {pliant.cascade.plan.LEAST_TEXTS}",
            )
    wanted = "at least one task, each of its own name (NAME=ADDRESS)"
    check_distinct("tasks", [data.name for data in loaded], wanted)
    for start in {level.start for task in config.tasks for level in config.levels_of(task)}:
        pliant.training.loading.look(start, pliant.training.starts.pretrained)
    return loaded


def make_level(
    config: CascadeFlowConfig, level: LevelConfig, data: TextData, progress: Progress
) -> tuple[Classifier, Notes]:
    """Train one classifier; its curves are in the notes."""
    began = time.monotonic()
    if level.start == "scratch":  # a new vocabulary is made of the fit split alone
        texts = [text for pair in data.texts(data.split.fit) for text in pair if text is not None]
        start = pliant.training.starts.scratch(level.scratch, texts)
    else:
        start = pliant.training.starts.pretrained(level.start)
    classifier, curves = pliant.training.classifier.train(
        level.classifier, level.name, data, start, config.device, progress
    )
    parameters = sum(array.size for array in classifier.weights.values())
    seconds = time.monotonic() - began
    return classifier, {"seconds": seconds, "parameters": parameters, "curves": asdict(curves)}


def make_outputs(
    config: CascadeFlowConfig, data: TextData, levels: Levels, split: str, progress: Progress
) -> tuple[Outputs, Notes]:
    """Run every level once over the texts of one split ("profiling" or "test")."""
    classifiers = [level.load() for level in levels.values()]
    digests = [level.digest for level in levels.values()]
    index = {"profiling": data.split.profiling, "test": data.split.test}[split]
    with threads(config.threads):
        outputs = pliant.profiling.cascade.outputs.run_all(
            classifiers, data, index, config.outputs, config.device, progress, digests
        )
    return outputs, {}


def make_linear(data: TextData, test: StageResult[Outputs], progress: Progress) -> tuple[LinearComparison, Notes]:
    """Compare the last level, whose outputs on the test split are there, with a linear model of the same texts."""
    progress(0, 1)
    return pliant.training.linear.compare_texts(data, test.load().levels[-1].logits), {}


def make_latencies(
    config: CascadeFlowConfig, data: TextData, levels: Levels, progress: Progress
) -> tuple[Latencies, Notes]:
    """Measure the levels of the data's task."""
    del data  # which names the stage
    return measure(config, [level.load() for level in levels.values()], progress), {}


def measure(config: CascadeFlowConfig, classifiers: Sequence[Classifier], progress: Progress) -> Latencies:
    """Measure every level's latency per (tokens, batch); with attention importance too, but for the last level."""
    plain: list[LatencyTable] = []
    importance: list[LatencyTable | None] = []
    last, total = len(classifiers) - 1, 2 * len(classifiers) - 1
    with threads(config.threads):
        for level, classifier in enumerate(classifiers):
            for wanted, tables in ((False, plain), (True, importance)):
                if wanted and level == last:
                    importance.append(None)
                    continue
                done = len(plain) + len(importance)
                part = share(progress, 100 * done // total, 100 * (done + 1) // total)
                table = pliant.profiling.cascade.latency.profile(
                    classifier, config.latency, config.device, part, wanted
                )
                tables.append(table)
        device = device_class(config.device)
    return Latencies(device, tuple(plain), tuple(importance), config.latency.execution.precision)


def make_plan(
    config: CascadeFlowConfig,
    data: TextData,
    outputs: StageResult[Outputs],
    test: StageResult[Outputs],
    latencies: StageResult[Latencies],
    progress: Progress,
) -> tuple[Cascade, Notes]:
    """Calibrate, plan, and test on texts that neither has seen.

    The plan is of the data set that the levels learnt from, also where later texts were pooled with it.
    """
    progress(0, 1)
    cascade = planned(config, outputs.load(), test.load(), latencies.load(), data.second is not None)
    return replace(cascade, data=data.fingerprint), {}


def planned(config: CascadeFlowConfig, held: Outputs, tested: Outputs, measured: Latencies, pair: bool) -> Cascade:
    """Return the cascade. Raises `ArtifactError` for outputs and latencies of several precisions."""
    if len({held.precision, tested.precision, measured.precision}) > 1:
        precisions = f"{held.precision}, {tested.precision} and {measured.precision}"
        raise ArtifactError(f"outputs and latencies of {held.task} were measured in {precisions}: one is needed")
    cascade = pliant.cascade.plan.make(held, measured.plain, measured.importance, config.plan, pair, measured.device)
    return pliant.cascade.evaluate.with_test_accuracy(cascade, tested)


def in_precision(config: CascadeFlowConfig, precision: str) -> CascadeFlowConfig:
    """Return the config whose outputs and latencies are measured in this precision."""
    outputs, latency = config.outputs, config.latency
    return replace(
        config,
        outputs=replace(outputs, execution=replace(outputs.execution, precision=precision)),
        latency=replace(latency, execution=replace(latency.execution, precision=precision)),
    )


def slowdown(half: Latencies, full: Latencies) -> float:
    """Return the seconds of `half` over those of `full`: the geometric mean over all levels, lengths and batches."""
    pairs = zip(half.plain, full.plain, strict=True)
    ratios = [np.log(np.asarray(low.seconds) / np.asarray(high.seconds)).ravel() for low, high in pairs]
    return float(np.exp(np.concatenate(ratios).mean()))


def cost(half: Outputs, full: Outputs) -> float:
    """Return how many answers fewer `half` gets right than `full`, as a share, of the level that loses most."""
    tolerance, shares = tolerance_of(full), list[list[float]]()
    for outputs in (half, full):
        if outputs.classes:
            right = [level.logits.argmax(1) == outputs.labels for level in outputs.levels]
        else:
            right = [np.abs(level.logits[:, 0] - outputs.labels) <= tolerance for level in outputs.levels]
        shares.append([float(right_R.mean()) for right_R in right])
    lost: float = max(before - after for after, before in zip(*shares, strict=True))
    return lost


LEVEL = Stage(
    "level",
    Classifier,
    make_level,
    lambda level, data: {
        "config": asdict(level),
        "files": list(contents(level.start)),
        "data": data.fingerprint,
        "name": data.name,
        "transformers": version("transformers"),
    },
    "cascade/model-{data.name}-{level.name}",
    "{data.name}: train {level.name}",
    run="level-{level.name}",
    download=True,
)
OUTPUTS = Stage(
    "outputs",
    Outputs,
    make_outputs,
    lambda config, data, levels, split: {
        "config": asdict(config.outputs),
        "levels": list(levels),
        "data": data.fingerprint,
        "split": split,
        "device": config.device,
    },
    "cascade/outputs-{data.name}-{split}",
    "{data.name}: outputs, {split}",
    run="outputs-{split}",
    code=(make_outputs, TextData),
    measured=True,
)
LESSONS = replace(OUTPUTS, task="lessons", bar="{data.name}: outputs of labelled texts, {split}", run="lessons-{split}")
LINEAR = Stage(
    "linear",
    LinearComparison,
    make_linear,
    lambda data: {"data": data.fingerprint},
    "cascade/linear-{data.name}",
    "{data.name}: linear model",
)
LATENCIES = Stage(
    "latencies",
    Latencies,
    make_latencies,
    lambda config: {"config": asdict(config.latency), "device": configured_class(config), "cores": os.cpu_count()},
    "cascade/latencies-{data.name}",
    "{data.name}: latency profile",
    measured=True,
)
PLAN = Stage(
    "plan",
    Cascade,
    make_plan,
    lambda config, data: {"config": asdict(config.plan), "pair": data.second is not None},
    folder="cascade/plan-{data.name}",
    bar="{data.name}: plan",
)


def run_task(run: Run, config: CascadeFlowConfig, task: TaskData) -> TaskResults:
    """Run every stage of one task."""
    data, lessons = task.data, feedback.taught(config, task.data)
    tell(f"labelled texts of {data.name}", lessons.repeats if lessons else None)
    texts, fitted = Texts(data, lessons), feedback.training_data(data, lessons)
    levels = {level.name: run(LEVEL, config, level, fitted) for level in task.levels}
    chosen, arithmetic = _in_best_precision(run, config, data, levels)
    float32 = () if chosen is config else tuple(pool(run, config, texts, levels, split) for split in SPLITS)
    outputs, test = (pool(run, chosen, texts, levels, split) for split in SPLITS)
    linear = run(LINEAR, fitted, run(OUTPUTS, chosen, data, levels, "test"))
    latencies = run(LATENCIES, chosen, data, levels)
    plan = run(PLAN, chosen, data, outputs, test, latencies)
    return TaskResults(data.name, texts, levels, outputs, test, latencies, plan, linear, float32, arithmetic)


def pool(run: Run, config: CascadeFlowConfig, texts: Texts, levels: Levels, split: str) -> StageResult[Outputs]:
    """Return the outputs on a split, with those on labelled texts where there are any."""
    old = run(OUTPUTS, config, texts.data, levels, split)
    if texts.lessons is None:
        return old
    new = run(LESSONS, config, texts.lessons, levels, split)
    return run(feedback.POOL, config, texts.data.name, split, old, new)


def _in_best_precision(
    run: Run, config: CascadeFlowConfig, data: TextData, levels: Levels
) -> tuple[CascadeFlowConfig, str]:
    """Return the config in the precision that is served, and a sentence on why: empty where there was no choice.

    What costs less is measured first: no outputs are computed in a precision that is not faster.
    """
    half = half_of(config.arithmetic, config.device)
    if half is None:
        return config, ""
    both = in_precision(config, half), config
    ratio = slowdown(*(run(LATENCIES, each, data, levels).load() for each in both))
    lost = lambda: cost(*(run(OUTPUTS, each, data, levels, "profiling").load() for each in both))  # noqa: E731
    served, reason = chosen(config.arithmetic, half, ratio, lost)
    return both[0] if served else config, reason
