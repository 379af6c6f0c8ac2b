"""The stages of the cascade flow, per task: classifiers -> bag and exits, distilled -> outputs -> latencies -> plan.

Texts that a service kept, where the settings name them, take the place of old ones (flows/cascade/feedback.py). Knows
no Prefect and no MLflow.

Shape suffixes: R texts, K outputs, L layers after which there are exits, D width of the large model.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

import pliant.cascade.evaluate
import pliant.cascade.plan
import pliant.profiling.cascade.outputs
import pliant.training.cascade.distil
import pliant.training.classifier
import pliant.training.data
import pliant.training.linear
import pliant.training.loading
import pliant.training.starts
import pliant.training.texts
from pliant.cascade.artifact import BAG, Bag, Cascade, Exit, Level, Outputs, Resumed, kind_of
from pliant.cascade.evaluate import as_large
from pliant.cascade.plan import LEAST_TEXTS, Measured, tolerance_of
from pliant.cascade.runtime import CascadeRuntime, Part, Payload
from pliant.device import device_class, threads
from pliant.errors import ArtifactError, InputError
from pliant.flows.arithmetic import chosen, half_of
from pliant.flows.cascade import feedback
from pliant.flows.cascade.config import CascadeFlowConfig, LevelConfig, TaskConfig
from pliant.flows.cascade.feedback import Texts
from pliant.flows.config import check_distinct, check_name, configured_class
from pliant.flows.progress import say, tell
from pliant.flows.stage import Notes, Run, Stage, StageResult, contents
from pliant.labelling import Label, Questions, Text
from pliant.latency import LatencyTable
from pliant.models.artifact import Classifier
from pliant.models.classifier import layers as layers_of
from pliant.models.classifier import load_model
from pliant.models.text import Reader
from pliant.profiling.cascade.latency import profile, profile_bag
from pliant.progress import Progress, share
from pliant.training.cascade.distil import exit_layers
from pliant.training.linear import LinearComparison
from pliant.training.starts import finished
from pliant.training.text_data import UNKNOWN, TextData, with_classes, without_labels

SPLITS = ("profiling", "test")
LARGE_SAYS = 64  # texts that the large model reads at once, for the small levels to learn from


@dataclass(frozen=True, slots=True)
class Latencies:
    """A stage's result alone: what the plan and the published cascade take over."""

    KIND: ClassVar[str] = "cascade-latencies"
    SCHEMA: ClassVar[int] = 2

    device: str  # device class
    levels: tuple[Measured, ...]
    precision: str = "float32"  # in which they were measured


@dataclass(frozen=True, slots=True)
class Lesson:
    """A stage's result alone: what the large model says of all texts that train, and what exits on its layers would read."""

    KIND: ClassVar[str] = "cascade-lesson"
    SCHEMA: ClassVar[int] = 1

    layers: tuple[int, ...]  # after which there are exits
    logits: NDArray[np.float32]  # [R, K]
    features: NDArray[np.float32]  # [L, R, 2 D]
    labels: NDArray[np.float64]  # [R] NaN: not known
    data: str  # fingerprint of the texts


@dataclass(frozen=True, slots=True)
class TaskData:
    """A task's levels, data set and address, further texts to distil from, and labels that people gave."""

    levels: tuple[LevelConfig, ...]
    data: TextData
    address: str
    unlabelled: tuple[Text, ...] = ()
    labels: tuple[Label, ...] = ()

    @property
    def name(self) -> str:
        return self.data.name


Levels = Mapping[str, StageResult[Any]]
"""What was trained, by name: bag and exits, then classifiers, ascending in size."""


@dataclass(frozen=True, slots=True)
class TaskResults:
    """All stages' results of one task."""

    name: str
    texts: Texts
    levels: Levels
    outputs: StageResult[Outputs]  # on the profiling split
    test: StageResult[Outputs]  # on the test split
    latencies: StageResult[Latencies]
    plan: StageResult[Cascade]
    linear: (
        StageResult[LinearComparison] | None
    )  # the last level beside a linear model, on the data set's own test split
    float32: tuple[StageResult[Outputs], ...] = ()  # both in float32, where `outputs` and `test` are in half precision
    arithmetic: str = ""  # a sentence on why the plan has its precision; empty where there was no choice


def load_data(config: CascadeFlowConfig) -> list[TextData]:
    """Return one data set a task. Raises `InputError` for too few texts, and for two tasks of one name."""
    for start in {level.start for task in config.tasks for level in config.levels_of(task)}:
        pliant.training.loading.look(start, pliant.training.starts.pretrained)
    loaded = [_load(config, task) for task in config.tasks]
    for data in loaded:  # before anything is trained
        tell(data.name, data.repeats)
        check_name("name of a task", data.name)  # a file's or a data set's name may have given it
        if len(data.split.profiling) < LEAST_TEXTS:
            raise InputError(f"texts of {data.name} to plan with", len(data.split.profiling), f"at least {LEAST_TEXTS}")
    wanted = "at least one task, each of its own name (NAME=ADDRESS)"
    check_distinct("tasks", [data.name for data in loaded], wanted)
    return loaded


def _load(config: CascadeFlowConfig, task: TaskConfig) -> TextData:
    """Return a task's data set, in the classes of a classifier that is not trained. Raises `InputError`."""
    kept = {level.name: finished(level.start)[2] for level in config.levels_of(task) if not level.fine_tune}
    if len(set(kept.values())) > 1:
        raise InputError("levels", ", ".join(kept), "classifiers of the same classes in the same order")
    classes = next(iter(kept.values()), ())
    if task.data is not None:
        data = pliant.training.texts.load(task.data, task.name, config.seed, task.limit, task.shares, task.columns)
        return with_classes(data, classes) if kept else data
    if len(kept) < len(config.levels_of(task)):
        raise InputError("data", "left out", "given where a level is trained (fine_tune = false: none is)")
    if task.unlabelled is None or task.name is None:
        raise InputError("unlabelled or name", "left out", "given where data is left out")
    texts = pliant.training.texts.load_texts(task.unlabelled, task.columns)[: task.limit]
    divided = pliant.training.data.split(len(texts), config.seed, task.shares.test, task.shares.profiling)
    return without_labels(task.name, texts, classes, divided)


def load_unlabelled(task: TaskConfig, data: TextData) -> tuple[Text, ...]:
    """Return the task's texts without labels, but for those that the data set holds out. Raises `InputError`."""
    if task.unlabelled is None or task.data is None:
        return ()
    texts = pliant.training.texts.load_texts(task.unlabelled, task.columns, data.second is not None)
    left = feedback.apart(texts, data)
    say(f"{data.name}: {len(left):,} texts without labels are read; {len(texts) - len(left):,} more are held out.")
    return left


def make_level(
    config: CascadeFlowConfig, level: LevelConfig, data: TextData, progress: Progress
) -> tuple[Classifier, Notes]:
    """Train one classifier; its curves are in the notes."""
    began = time.monotonic()
    if not level.fine_tune:
        return pliant.training.classifier.taken_over(level.classifier, level.name, data, level.start), {}
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


def make_lesson(
    config: CascadeFlowConfig,
    data: TextData,
    unlabelled: Sequence[Text],
    large: StageResult[Classifier],
    progress: Progress,
) -> tuple[Lesson, Notes]:
    """Let the large model read all texts that it was trained on, and those without labels."""
    classifier = large.load()
    texts = [*data.texts(data.split.fit), *unlabelled]
    labels = np.concatenate([data.labels[data.split.fit].astype(np.float64), np.full(len(unlabelled), np.nan)])
    if data.classes:
        labels[labels == UNKNOWN] = np.nan
    readings, runtime = readings_of(classifier, texts), CascadeRuntime({0: classifier}, config.device)
    notes: dict[str, Any] = {}
    try:
        chosen = exit_layers(len(layers_of(load_model(classifier))), config.distil)
        if chosen:
            runtime.hidden(0, readings[:1], chosen)
    except ArtifactError as error:  # of a family that cannot be cut behind a layer
        say(f"{data.name}: its large model gets no exits: {error}.")
        chosen, notes = (), {"exits": str(error)}
    order = sorted(range(len(texts)), key=lambda row: len(readings[row][0]))
    logits, features = dict[int, NDArray[np.float32]](), dict[int, NDArray[np.float32]]()
    with threads(config.threads):
        for at in range(0, len(order), LARGE_SAYS):
            rows = order[at : at + LARGE_SAYS]
            batch = [readings[row] for row in rows]
            said, read = runtime.hidden(0, batch, chosen) if chosen else (runtime.run(0, batch).logits, [])
            logits |= zip(rows, said, strict=True)
            features |= zip(rows, read, strict=False)
            progress(at + len(rows), len(order))
    logit_RK = np.stack([logits[row] for row in range(len(texts))])
    empty = np.empty((0, len(texts), 0), np.float32)
    feature_LRD = np.stack([features[row] for row in range(len(texts))], axis=1) if chosen else empty
    mark = hashlib.sha256(repr((data.fingerprint, list(unlabelled))).encode()).hexdigest()
    return Lesson(chosen, logit_RK, feature_LRD, labels, f"sha256:{mark}"), notes


def make_bag(
    config: CascadeFlowConfig,
    data: TextData,
    unlabelled: Sequence[Text],
    large: StageResult[Classifier],
    lesson: StageResult[Lesson],
    progress: Progress,
) -> tuple[Bag, Notes]:
    """Distil a bag of n-grams."""
    began, classifier, learnt = time.monotonic(), large.load(), lesson.load()
    readings = readings_of(classifier, [*data.texts(data.split.fit), *unlabelled])
    tokens: Any = load_model(classifier).get_input_embeddings()  # type: ignore[operator]
    with threads(1):  # many small steps
        bag = pliant.training.cascade.distil.train_bag(
            *(config.distil, classifier, large.digest, "bag", learnt.data),
            *(readings, learnt.logits, learnt.labels, tokens.weight.detach().numpy(), progress),
        )
    return bag, {"seconds": time.monotonic() - began, "texts": len(readings)}


def make_exit(
    config: CascadeFlowConfig,
    data: TextData,
    large: StageResult[Classifier],
    lesson: StageResult[Lesson],
    layers: int,
    progress: Progress,
) -> tuple[Exit, Notes]:
    """Distil the head on the large model's first layers."""
    del data  # which names the stage
    began, learnt = time.monotonic(), lesson.load()
    with threads(1):
        head = pliant.training.cascade.distil.train_exit(
            *(config.distil, large.load(), large.digest, f"exit{layers}", layers, learnt.data),
            *(learnt.features[learnt.layers.index(layers)], learnt.logits, learnt.labels, progress),
        )
    return head, {"seconds": time.monotonic() - began, "texts": len(learnt.logits)}


def readings_of(classifier: Classifier, texts: Sequence[Text]) -> list[Payload]:
    """Return the texts as the classifier reads them."""
    reader = Reader(classifier.tokenizer, classifier.max_length)
    readings = [reader.read(*text) for text in texts]
    return [(reading.ids, reading.types) for reading in readings]


def make_outputs(
    config: CascadeFlowConfig, data: TextData, levels: Levels, split: str, progress: Progress
) -> tuple[Outputs, Notes]:
    """Run every level once over the texts of one split ("profiling" or "test")."""
    artifacts = [level.load() for level in levels.values()]
    digests = [level.digest for level in levels.values()]
    index = {"profiling": data.split.profiling, "test": data.split.test}[split]
    with threads(config.threads):
        outputs = pliant.profiling.cascade.outputs.run_all(
            artifacts, data, index, config.outputs, config.device, progress, digests
        )
    if split == "test" and np.isnan(outputs.labels).all():
        outputs = as_large(outputs)  # nobody knows more
    return outputs, {}


def make_labelled(
    data: TextData, outputs: StageResult[Outputs], labels: Sequence[tuple[int, int]], progress: Progress
) -> tuple[Outputs, Notes]:
    """Put the labels that people gave, by place, where the outputs on the profiling split have none."""
    del data  # which names the stage
    progress(0, 1)
    known = outputs.load()
    label_R = known.labels.copy()
    for place, label in labels:
        if np.isnan(label_R[place]):
            label_R[place] = label
    return replace(known, labels=label_R), {}


def make_linear(data: TextData, test: StageResult[Outputs], progress: Progress) -> tuple[LinearComparison, Notes]:
    """Compare the last level, whose outputs on the test split are there, with a linear model of the same texts."""
    progress(0, 1)
    return pliant.training.linear.compare_texts(data, test.load().levels[-1].logits), {}


def make_latencies(
    config: CascadeFlowConfig, data: TextData, levels: Levels, progress: Progress
) -> tuple[Latencies, Notes]:
    """Measure the levels of the data's task."""
    del data  # which names the stage
    artifacts = {level.digest: level.load() for level in levels.values()}
    return measure(config, artifacts, progress), {}


def measure(config: CascadeFlowConfig, levels: Mapping[str, Level], progress: Progress) -> Latencies:
    """Measure the latency of levels, by their digests: of each alone, and behind each exit before it on the same layers.

    Of classifiers but the last one with attention importance as well.
    """
    exits = [level for level in levels.values() if isinstance(level, Exit)]
    last = [level for level in levels.values() if isinstance(level, Classifier)][-1]
    parts: list[tuple[str, Part | Bag, bool]] = []
    for digest, level in levels.items():
        if isinstance(level, Bag):
            parts.append((digest, level, False))
            continue
        trunk = digest if isinstance(level, Classifier) else level.large
        classifier, end = levels[trunk], level if isinstance(level, Exit) else None
        assert isinstance(classifier, Classifier), "an exit is on a classifier"
        before = [each.layers for each in exits if each.large == trunk and (end is None or each.layers < end.layers)]
        parts += [(digest, Part(classifier, layers, end), False) for layers in (0, *before)]
        if isinstance(level, Classifier) and level is not last:
            parts.append((digest, Part(classifier), True))
    tables = []
    with threads(config.threads):
        for number, (_, part, importance) in enumerate(parts):
            of = share(progress, 100 * number // len(parts), 100 * (number + 1) // len(parts))
            if isinstance(part, Bag):
                tables.append(profile_bag(part, config.latency, of))
            else:
                tables.append(profile(part, config.latency, config.device, of, importance))
        device = device_class(config.device)
    measured = [(*each, table) for each, table in zip(parts, tables, strict=True)]
    return Latencies(
        device,
        tuple(
            _measured(level, [each[1:] for each in measured if each[0] == digest]) for digest, level in levels.items()
        ),
        config.latency.execution.precision,
    )


def _measured(level: Level, tables: Sequence[tuple[Part | Bag, bool, LatencyTable]]) -> Measured:
    """Return what was measured of a level: by its parts, whether with importance."""
    behind = {
        part.begin if isinstance(part, Part) else 0: table for part, importance, table in tables if not importance
    }
    return Measured(
        behind.pop(0),
        next((table for _, importance, table in tables if importance), None),
        kind_of(level),
        level.large if isinstance(level, Exit) else "",
        level.layers if isinstance(level, Exit) else 0,
        tuple(Resumed(layers, table) for layers, table in behind.items()),
    )


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
    cascade = pliant.cascade.plan.make(held, measured.levels, config.plan, pair, measured.device)
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
    pairs = zip(half.levels, full.levels, strict=True)
    ratios = [
        np.log(np.asarray(low.latency.seconds) / np.asarray(high.latency.seconds)).ravel()
        for low, high in pairs
        if low.kind != BAG
    ]
    return float(np.exp(np.concatenate(ratios).mean()))


def cost(half: Outputs, full: Outputs) -> float:
    """Return how many answers fewer `half` gets right than `full`, as a share, of the level that loses most.

    Where labels are missing, right is what the large model says in full precision.
    """
    tolerance, shares = tolerance_of(full), list[list[float]]()
    if np.isnan(full.labels).any():
        full = as_large(full)
    for outputs in (half, full):
        if outputs.classes:
            right = [level.logits.argmax(1) == full.labels for level in outputs.levels]
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
LESSON = Stage(
    "lesson",
    Lesson,
    make_lesson,
    lambda config, data, unlabelled: {
        "exits": config.distil.exits,
        "data": data.fingerprint,
        "unlabelled": hashlib.sha256(repr(list(unlabelled)).encode()).hexdigest(),
        "device": config.device,
    },
    "cascade/lesson-{data.name}",
    "{data.name}: what the large model says",
    measured=True,
)
BAG_STAGE = Stage(
    "bag",
    Bag,
    make_bag,
    lambda config: {"config": asdict(config.distil)},
    "cascade/bag-{data.name}",
    "{data.name}: distil a bag of n-grams",
)
EXIT_STAGE = Stage(
    "exit",
    Exit,
    make_exit,
    lambda config, layers: {"config": asdict(config.distil), "layers": layers},
    "cascade/exit{layers}-{data.name}",
    "{data.name}: distil an exit after layer {layers}",
    run="exit-{layers}",
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
LABELLED = Stage(
    "labels",
    Outputs,
    make_labelled,
    lambda labels: {"labels": list(labels)},
    "cascade/labelled-{data.name}",
    "{data.name}: labels that were given",
)
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
    timed=True,
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
    texts = feedback.texts_of(config, task.data, task.unlabelled)
    data, held = texts.data, texts.held
    tell(f"texts of {data.name} with those that were kept", held.repeats if held is not data else None)
    classifiers = {level.name: run(LEVEL, config, level, data) for level in task.levels}
    # A table of tokens from scratch has learnt from these very texts, and keeps a bag from being better than the model.
    tokens = config.distil.tokens and task.levels[-1].start != "scratch"
    distil = replace(config, distil=replace(config.distil, tokens=tokens))
    levels = distilled(run, distil, data, taught(run, distil, texts, task.unlabelled, classifiers), classifiers)
    chosen, arithmetic = _in_best_precision(run, config, held, levels)
    given = feedback.bought(held, task.labels)

    def saved(config: CascadeFlowConfig) -> tuple[StageResult[Outputs], StageResult[Outputs]]:
        outputs, test = (run(OUTPUTS, config, held, levels, split) for split in SPLITS)
        return run(LABELLED, held, outputs, given) if given else outputs, test

    float32 = () if chosen is config else saved(config)
    outputs, test = saved(chosen)
    labelled = bool(len(data.split.fit)) and data.labels[data.split.test].min() >= 0
    linear = run(LINEAR, data, run(OUTPUTS, chosen, data, levels, "test")) if data.regression or labelled else None
    latencies = run(LATENCIES, chosen, data, levels)
    plan = run(PLAN, chosen, data, outputs, test, latencies)
    return TaskResults(data.name, texts, levels, outputs, test, latencies, plan, linear, float32, arithmetic)


def questions(config: CascadeFlowConfig, result: TaskResults) -> Questions:
    """Return the texts whose labels would make the task's cascade cheaper, in random order."""
    plan, held = result.plan.load(), result.texts.held
    wanted = pliant.cascade.plan.purchase(result.outputs.load(), result.latencies.load().levels, config.plan, plan)
    rows = np.random.default_rng(config.seed).permutation(wanted.rows)
    texts = tuple(held.texts(held.split.profiling[rows]))
    return Questions(plan.task, plan.classes, texts, f"{plan.task}: {wanted.sentence}.")


def taught(
    run: Run, config: CascadeFlowConfig, texts: Texts, own: Sequence[Text], classifiers: Levels
) -> Sequence[Text]:
    """Return the texts without labels that are distilled from: of those that a service kept none, where labels of others
    show that the large model is right less often than what was distilled without them.

    What it says of changed texts would make bag and exits as wrong as it is.
    """
    own = feedback.apart(own, texts.held)
    if texts.held is texts.data or set(texts.unlabelled) <= set(own):
        return texts.unlabelled
    outputs = run(OUTPUTS, config, texts.held, distilled(run, config, texts.data, own, classifiers), "profiling").load()
    known_R = ~np.isnan(outputs.labels)
    if texts.held.regression or known_R.sum() < LEAST_TEXTS:
        return texts.unlabelled
    right = [float((level.logits.argmax(1) == outputs.labels)[known_R].mean()) for level in outputs.levels]
    if right[-1] >= max(right):
        return texts.unlabelled
    say(
        f"{texts.data.name}: its large model is right on {right[-1]:.1%} of the labelled texts, what was distilled from it "
        f"on {max(right):.1%}: nothing learns what it says of kept texts."
    )
    return own


def distilled(
    run: Run, config: CascadeFlowConfig, data: TextData, unlabelled: Sequence[Text], classifiers: Levels
) -> Levels:
    """Return the levels with a bag and exits in front, which learn from the last classifier."""
    if not config.distil.bag and config.distil.exits == ():
        return classifiers
    *_, large = classifiers.values()
    lesson = run(LESSON, config, data, unlabelled, large)
    levels: dict[str, StageResult[Any]] = {}
    if config.distil.bag:
        levels["bag"] = run(BAG_STAGE, config, data, unlabelled, large, lesson)
    for layers in lesson.load().layers:
        levels[f"exit{layers}"] = run(EXIT_STAGE, config, data, large, lesson, layers)
    return {**levels, **classifiers}


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
