"""The stages of the cascade flow as plain functions over a store: each reads artifacts, makes one, and saves it.

Also what each stage depends on, as a key (see flows/keys.py). Knows no Prefect and no MLflow.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from typing import ClassVar

import pliant.cascade.evaluate
import pliant.cascade.plan
import profiling.cascade.latency
import profiling.cascade.outputs
import training.classifier
import training.linear
import training.loading
import training.starts
import training.texts
from flows.cascade.config import CascadeFlowConfig, LevelConfig
from flows.config import check_distinct, check_name
from flows.device import configured_class
from flows.keys import StageResult, contents, keep, stage_key
from flows.repeats import tell
from pliant.cascade.artifact import Cascade, Outputs
from pliant.device import device_class, threads
from pliant.errors import ArtifactError, InputError
from pliant.latency import LatencyTable
from pliant.models.artifact import Classifier
from pliant.progress import Progress, share
from registry.store import FolderStore
from training.linear import LinearComparison
from training.starts import Start
from training.text_data import TextData


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
class TaskResults:
    """All stages' results of one task. `levels`: by name, ascending in size."""

    task: str
    levels: Mapping[str, StageResult]
    outputs: StageResult  # on the profiling split
    test: StageResult  # on the test split
    latencies: StageResult
    plan: StageResult
    float32: tuple[StageResult, ...] = ()  # both outputs in float32, where `outputs` and `test` are in half precision
    arithmetic: str = ""  # a sentence on why the plan has its precision; empty where there was no choice
    texts: Texts | None = None  # that the outputs are of
    linear: StageResult | None = None  # the last level beside a linear model, on the data set's own test split


def load_data(config: CascadeFlowConfig) -> list[TextData]:
    """Return one data set a task. Raises `InputError` for too few texts, and for two tasks of one name."""
    loaded = [
        training.texts.load(task.data, task.name, config.seed, task.limit, task.shares, task.columns)
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
        training.loading.look(start, training.starts.pretrained)
    return loaded


def train_key(level: LevelConfig, data: TextData) -> str:
    depends = {
        "config": asdict(level),
        "files": list(contents(level.start)),
        "data": data.fingerprint,
        "name": data.name,
        "transformers": version("transformers"),
    }
    return stage_key(f"cascade/model-{data.name}-{level.name}", depends, make_level)


def make_level(
    config: CascadeFlowConfig, level: LevelConfig, data: TextData, key: str, store: FolderStore, progress: Progress
) -> StageResult:
    """Train one classifier; its curves are in the notes."""
    began = time.monotonic()
    classifier, curves = training.classifier.train(
        level.classifier, level.name, data, _start(level, data), config.device, progress
    )
    parameters = sum(array.size for array in classifier.weights.values())
    notes = {"seconds": time.monotonic() - began, "parameters": parameters, "curves": asdict(curves)}
    return keep(store, key, classifier, notes)


def _start(level: LevelConfig, data: TextData) -> Start:
    """Return what the level starts from. A new vocabulary is made of the fit split alone."""
    if level.start != "scratch":
        return training.starts.pretrained(level.start)
    texts = [text for pair in data.texts(data.split.fit) for text in pair if text is not None]
    return training.starts.scratch(level.scratch, texts)


def outputs_key(config: CascadeFlowConfig, data: TextData, levels: Mapping[str, StageResult], split: str) -> str:
    depends = {
        "config": asdict(config.outputs),
        "levels": {name: level["digest"] for name, level in levels.items()},
        "data": data.fingerprint,
        "split": split,
        "device": config.device,
    }
    return stage_key(f"cascade/outputs-{data.name}-{split}", depends, make_outputs, TextData, measured=True)


def make_outputs(
    config: CascadeFlowConfig,
    data: TextData,
    levels: Mapping[str, StageResult],
    split: str,
    key: str,
    store: FolderStore,
    progress: Progress,
) -> StageResult:
    """Run every level once over the texts of one split ("profiling" or "test")."""
    classifiers = load_levels(store, levels)
    digests = [level["digest"] for level in levels.values()]
    index = {"profiling": data.split.profiling, "test": data.split.test}[split]
    with threads(config.threads):
        outputs = profiling.cascade.outputs.run_all(
            classifiers, data, index, config.outputs, config.device, progress, digests
        )
    return keep(store, key, outputs)


def linear_key(data: TextData, test: StageResult) -> str:
    return stage_key(f"cascade/linear-{data.name}", {"data": data.fingerprint, "test": test["digest"]}, make_linear)


def make_linear(data: TextData, test: StageResult, key: str, store: FolderStore) -> StageResult:
    """Compare the last level, whose outputs on the test split are there, with a linear model of the same texts."""
    outputs = store.load(Outputs, test["key"], test["digest"])
    return keep(store, key, training.linear.compare_texts(data, outputs.levels[-1].logits))


def latencies_key(config: CascadeFlowConfig, data: TextData, levels: Mapping[str, StageResult]) -> str:
    depends = {
        "config": asdict(config.latency),
        "levels": [level["digest"] for level in levels.values()],
        "device": configured_class(config),
        "cores": os.cpu_count(),
    }
    return stage_key(f"cascade/latencies-{data.name}", depends, make_latencies, measured=True)


def make_latencies(
    config: CascadeFlowConfig, levels: Mapping[str, StageResult], key: str, store: FolderStore, progress: Progress
) -> StageResult:
    measured = measure(config, load_levels(store, levels), progress)
    return keep(store, key, measured)


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
                table = profiling.cascade.latency.profile(classifier, config.latency, config.device, part, wanted)
                tables.append(table)
        device = device_class(config.device)
    return Latencies(device, tuple(plain), tuple(importance), config.latency.execution.precision)


def plan_key(
    config: CascadeFlowConfig, data: TextData, outputs: StageResult, test: StageResult, latencies: StageResult
) -> str:
    depends = {
        "config": asdict(config.plan),
        "outputs": outputs["digest"],
        "test": test["digest"],
        "latencies": latencies["digest"],
        "pair": data.second is not None,
    }
    return stage_key(f"cascade/plan-{data.name}", depends, make_plan)


def make_plan(
    config: CascadeFlowConfig,
    data: TextData,
    outputs: StageResult,
    test: StageResult,
    latencies: StageResult,
    key: str,
    store: FolderStore,
    progress: Progress,
) -> StageResult:
    """Calibrate, plan, and test on texts that neither has seen.

    The plan is of the data set that the levels learnt from, also where later texts were pooled with it.
    """
    held = store.load(Outputs, outputs["key"], outputs["digest"])
    measured = store.load(Latencies, latencies["key"], latencies["digest"])
    tested = store.load(Outputs, test["key"], test["digest"])
    cascade = replace(planned(config, held, tested, measured, data.second is not None), data=data.fingerprint)
    progress(1, 1)
    return keep(store, key, cascade)


def planned(config: CascadeFlowConfig, held: Outputs, tested: Outputs, measured: Latencies, pair: bool) -> Cascade:
    """Return the cascade. Raises `ArtifactError` for outputs and latencies of several precisions."""
    if len({held.precision, tested.precision, measured.precision}) > 1:
        precisions = f"{held.precision}, {tested.precision} and {measured.precision}"
        raise ArtifactError(f"outputs and latencies of {held.task} were measured in {precisions}: one is needed")
    cascade = pliant.cascade.plan.make(held, measured.plain, measured.importance, config.plan, pair, measured.device)
    return pliant.cascade.evaluate.with_test_accuracy(cascade, tested)


def load_linear(store: FolderStore, result: TaskResults) -> LinearComparison | None:
    linear = result.linear
    return None if linear is None else store.load(LinearComparison, linear["key"], linear["digest"])


def load_levels(store: FolderStore, levels: Mapping[str, StageResult]) -> list[Classifier]:
    return [store.load(Classifier, level["key"], level["digest"]) for level in levels.values()]
