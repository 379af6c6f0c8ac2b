"""The stages of the tokens flow: foundation -> tasks -> profile. Knows no Prefect and no MLflow."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import pliant.profiling.tokens.accuracy
import pliant.profiling.tokens.latency
import pliant.training.data
import pliant.training.linear
import pliant.training.tokens.foundation
import pliant.training.tokens.task
from pliant.device import device_class, threads
from pliant.errors import InputError
from pliant.flows.arithmetic import ArithmeticConfig, half_of, taken, too_costly, too_slow
from pliant.flows.config import check_distinct, check_name, configured_class, named_address
from pliant.flows.feedback import FeedbackConfig, Lesson, lessons
from pliant.flows.progress import say, tell
from pliant.flows.stage import Notes, Run, Stage, StageResult, digest_of
from pliant.flows.tokens.config import TokensFlowConfig
from pliant.precision import is_fast
from pliant.progress import Progress, share
from pliant.tokens.artifact import FLOAT32, SHALLOW, Backbone, Profile, Task
from pliant.tokens.otas import rate_rule
from pliant.tokens.runtime import Execution, TokensRuntime
from pliant.training.data import ImageData
from pliant.training.tokens import labelled
from pliant.training.tokens.labelled import LabelledPicture

logger = logging.getLogger("pliant")

FORM = re.compile(r"uint8 ([1-9]\d{0,4}) ([1-9]\d{0,4}) 3")

GAIN = 0.95
"""Confidence that what costs more than gamma 0 earns something, for all of a task's together."""

TESTED = 1000
"""Test pictures, at most, on which a task is compared with a linear model."""


def load_data(config: TokensFlowConfig) -> list[ImageData]:
    """Return one data set a task. Raises `InputError` for two tasks of one name, which would overwrite each other."""
    loaded = []
    for entry in config.data:
        name, address = named_address(entry)
        loaded.append(pliant.training.data.load(address, name, config.seed, config.limit, config.columns))
    wanted = "at least one task, each of its own name (NAME=ADDRESS)"
    check_distinct("data", [data.name for data in loaded], wanted)
    for data in loaded:
        check_name("name of a task", data.name)  # an address may have given it
        tell(data.name, data.repeats)
    return loaded


def load_upstream(config: TokensFlowConfig, loaded: Sequence[ImageData]) -> ImageData:
    """Return what the foundation is trained on, split as its tasks are: no foundation has seen what a task tests with."""
    if config.upstream is None:
        return loaded[0]
    return pliant.training.data.load(config.upstream, None, config.seed, None, config.columns)


def _foundation_of(config: TokensFlowConfig, data: ImageData) -> dict[str, Any]:
    if config.backbone == "embedded":
        return {"config": asdict(config.foundation), "data": data.fingerprint}
    scheme, _, rest = config.backbone.partition(":")
    path, content = Path(rest.partition(":")[2]), None
    if scheme == "file" and path.is_file():  # the file may change under its name
        content = digest_of(path)
    size = {} if config.image_size is None else {"image_size": config.image_size}
    return {"backbone": config.backbone, "timm": version("timm"), "file": content, **size}


def make_foundation(config: TokensFlowConfig, data: ImageData, progress: Progress) -> tuple[Backbone, Notes]:
    """Make the backbone: pretrained here (embedded), from timm's hub, or from a local file."""
    scheme, _, rest = config.backbone.partition(":")
    began = time.monotonic()
    match scheme:
        case "embedded":
            backbone = pliant.training.tokens.foundation.pretrain(config.foundation, data, config.device, progress)
        case "timm":
            backbone = pliant.training.tokens.foundation.from_timm(rest, config.image_size)
        case "file":
            architecture, _, path = rest.partition(":")
            backbone = pliant.training.tokens.foundation.from_file(architecture, path, config.image_size)
        case _:
            raise InputError("backbone", config.backbone, "embedded, timm:ARCHITECTURE or file:ARCHITECTURE:PATH")
    return backbone, {"seconds": time.monotonic() - began}


def make_task(
    config: TokensFlowConfig, data: ImageData, backbone: StageResult[Backbone], progress: Progress
) -> tuple[Task, Notes]:
    """Train and measure a task: head, prompts, accuracy per gamma."""
    foundation, measured, began = backbone.load(), share(progress, 80, 100), time.monotonic()
    task = pliant.training.tokens.task.train(
        *(config.task, data, foundation, backbone.digest, config.device, share(progress, 0, 80)),
        [gamma for gamma in config.latency.gammas if gamma < 0],
    )
    notes: dict[str, Any] = {"seconds": time.monotonic() - began}
    half = half_of(config.arithmetic, config.device)
    if half is not None:
        with threads(config.threads):
            ratio = pliant.profiling.tokens.latency.slowdown(foundation, task, half, config.device)
        if reason := too_slow(config.arithmetic, half, ratio):
            half, notes["arithmetic"] = None, reason
    gammas = config.latency.gammas
    if config.task.points and not task.points:
        say(f"{data.name}: there are no operating points, as the backbone takes pictures of one size alone.")
    task, notes["tried"] = with_gains(config, foundation, task, data)
    gammas = tuple(sorted({gamma for gamma in gammas if task.serves(gamma)} | task.prompts.keys()))
    task = pliant.profiling.tokens.accuracy.profile(
        foundation, task, data, config.device, gammas, measured, config.measured, half
    )
    # Beside a linear model, at the gamma of the best profiling accuracy, on the first test pictures.
    best, rows = max(task.accuracy, key=lambda gamma: task.accuracy[gamma]), data.split.test[: config.measured][:TESTED]
    point = {best: task.points[best]} if best in task.points else {}
    runtime = TokensRuntime(foundation, task.backbone, [task], config.device, Execution(precision=FLOAT32), point)
    right_R = pliant.profiling.tokens.accuracy.right(runtime, task.name, data, rows, best, foundation.image_size)
    return task, notes | {"linear": asdict(pliant.training.linear.compare_pictures(data, rows, right_R))}


def with_gains(
    config: TokensFlowConfig, foundation: Backbone, task: Task, data: ImageData
) -> tuple[Task, list[dict[str, Any]]]:
    """Return the task without prompts that earn nothing, and what was tried and earned.

    Each gamma above 0 is compared, picture by picture of the profiling split, with the best of what takes no longer than
    gamma 0, which the fit split has chosen. It stays where the interval of its gain lies above 0 at 95% confidence for all
    that were tried.
    """
    if not task.prompts:
        return task, []
    best, tried = max(task.judged, key=lambda number: (task.judged[number], -number)), list[dict[str, Any]]()
    judge = partial(
        pliant.profiling.tokens.accuracy.right_of, foundation, task, data, device=config.device, limit=config.measured
    )
    beside_N = judge(best)
    for gamma in sorted(task.prompts):
        right_N = judge(gamma)
        gain = pliant.profiling.tokens.accuracy.compare(right_N, beside_N, 1 - (1 - GAIN) / len(task.prompts))
        shares = {"accuracy": float(right_N.mean()), "other": float(beside_N.mean())}
        tried.append({"gamma": gamma, "beside": best, **shares, **asdict(gain), "offered": gain.low > 0})
        if gain.low <= 0:
            interval = f"{gain.gain:+.1%} right ({gain.low:+.1%} to {gain.high:+.1%}) beside setting {best}"
            say(f"{data.name}: gamma {gamma} is not offered, as it is not shown to earn anything: {interval}.")
    lost = {each["gamma"] for each in tried if not each["offered"]}
    heads = {number: head for number, head in task.heads.items() if number not in lost}
    prompts = {gamma: prompt for gamma, prompt in task.prompts.items() if gamma not in lost}
    return replace(task, heads=heads, prompts=prompts), tried


def make_profile(
    config: TokensFlowConfig, backbone: StageResult[Backbone], tasks: Sequence[StageResult[Task]], progress: Progress
) -> tuple[Profile, Notes]:
    """Measure latency and memory per (gamma, batch) with all tasks mixed, and derive the rate rule.

    All is measured in the precision that is served, which the notes say why.
    """
    foundation, loaded = backbone.load(), [task.load() for task in tasks]
    profile, reason = measure(config, foundation, backbone.digest, loaded, progress)
    return profile, {"arithmetic": reason}


def measure(
    config: TokensFlowConfig, backbone: Backbone, digest: str, tasks: Sequence[Task], progress: Progress
) -> tuple[Profile, str]:
    """Return the profile of these tasks on this device, and a sentence on its precision; `digest`: of the backbone."""
    with threads(config.threads):
        precision, reason = served_precision(config.arithmetic, backbone, tasks, config.device)
        served, execution = [task.served_in(precision) for task in tasks], Execution(precision=precision)
        tried = {*config.latency.gammas, *(g for t in tasks for g in t.prompts if g > SHALLOW)}
        own = replace(config.latency, gammas=tuple(sorted(g for g in tried if all(t.serves(g) for t in tasks))))
        # Points that all tasks have, and of these those that are worth offering here.
        points = {n: point for n, point in tasks[0].points.items() if all(t.points.get(n) == point for t in tasks)}
        if precision != FLOAT32:  # a point that half precision costs too much is left out alone
            most = config.arithmetic.tolerance
            points = {n: point for n, point in points.items() if all(t.cost(precision, [n]) <= most for t in tasks)}
        if points:
            runtime = TokensRuntime(backbone, digest, served, config.device, execution, points, own.gammas)
            chosen = pliant.profiling.tokens.latency.offered(
                runtime, served, backbone.image_size, own.batches[-1], share(progress, 0, 30)
            )
            points = {number: points[number] for number in chosen}
        runtime = TokensRuntime(backbone, digest, served, config.device, execution, points, own.gammas)
        names = [task.name for task in served]
        measured = pliant.profiling.tokens.latency.profile(
            runtime, names, backbone.image_size, own, config.device, share(progress, 30, 100)
        )
        device = device_class(config.device)
    latency, urgent = measured.latency, config.reference.urgent[0]
    mean = {gamma: float(np.mean([task.accuracy[gamma] for task in served])) for gamma in latency.settings}
    # OTAS's rule knows gammas alone. A batch may take half of the urgent deadline.
    rule = rate_rule(latency.only(own.gammas), mean, latency.batches[-1], urgent / 2)
    return Profile(digest, device, latency, measured.spread, measured.memory, rule, precision, points), reason


def served_precision(
    config: ArithmeticConfig, foundation: Backbone, tasks: Sequence[Task], device: str
) -> tuple[str, str]:
    """Return the precision that these tasks are served in together, and why, in a sentence.

    It is half precision where the accuracies of all were measured in it, none loses more at any gamma than is tolerated,
    and it is measured to be faster here.
    """
    if config.precision == FLOAT32:
        return FLOAT32, "float32 is served, as the configuration says"
    half = next((p for p in tasks[0].half if is_fast(p, device) and all(p in task.half for task in tasks)), None)
    if half is None:
        return FLOAT32, "float32 is served: the accuracies of all tasks were measured in no faster precision"
    cost = max(task.cost(half, task.accuracy.keys() - task.points.keys()) for task in tasks)
    if reason := too_costly(config, half, cost):
        return FLOAT32, reason
    ratio = pliant.profiling.tokens.latency.slowdown(foundation, tasks[0], half, device)
    if reason := too_slow(config, half, ratio):
        return FLOAT32, reason
    return half, taken(half, ratio, cost)


@dataclass(frozen=True, slots=True)
class Bundle:
    """Everything that a service of the tokens system loads."""

    backbone: Backbone
    tasks: tuple[Task, ...]
    profile: Profile


FOUNDATION = Stage(
    "foundation", Backbone, make_foundation, _foundation_of, folder="tokens/backbone", bar="foundation", download=True
)
TASK = Stage(
    "task",
    Task,
    make_task,
    lambda config, data: {
        "config": asdict(config.task),
        "data": data.fingerprint,
        "name": data.name,
        "gammas": config.latency.gammas,  # at which its accuracy is measured
        "measured": config.measured,
        "half": half_of(config.arithmetic, config.device),
    },
    folder="tokens/task-{data.name}",
    bar="task {data.name}",
    run="task-{data.name}",
)
PROFILE = Stage(
    "profile",
    Profile,
    make_profile,
    lambda config: {
        "config": asdict(config.latency),
        "arithmetic": asdict(config.arithmetic),
        "deadline": config.reference.urgent[0],  # the rate rule follows from it
        "device": configured_class(config),
        "cores": os.cpu_count(),
    },
    folder="tokens/profile",
    bar="latency profile",
    measured=True,
    timed=True,
)


@dataclass(frozen=True, slots=True)
class TokensData:
    """All tasks of one backbone. `tasks`: their data with the labelled pictures that teach; `original`: without these."""

    upstream: ImageData
    original: tuple[ImageData, ...]
    tasks: tuple[ImageData, ...]
    name: str = ""


@dataclass(frozen=True, slots=True)
class TokensResults:
    """All stages' results, and the data that they were made of."""

    data: TokensData
    backbone: StageResult[Backbone]
    tasks: tuple[StageResult[Task], ...]
    profile: StageResult[Profile]
    name: str = ""

    def bundle(self) -> Bundle:
        """Return what the stages made, with the tasks' accuracies in the profile's precision."""
        measured = self.profile.load()
        served = tuple(task.load().served_in(measured.precision) for task in self.tasks)
        return Bundle(self.backbone.load(), served, measured)


def run_tasks(run: Run, config: TokensFlowConfig, data: TokensData) -> TokensResults:
    """Run every stage of all tasks."""
    backbone = run(FOUNDATION, config, data.upstream)
    tasks = [run(TASK, config, each, backbone) for each in data.tasks]
    profile = run(PROFILE, config, backbone, sorted(tasks, key=lambda task: task.digest))
    noted = (
        task.noted(
            repeats=str(original.repeats) if original.repeats else None,
            labels=None if each is original else labelled.counts(original, each),
        )
        for task, original, each in zip(tasks, data.original, data.tasks, strict=True)
    )
    return TokensResults(data, backbone, tuple(noted), profile)


def with_lessons(config: FeedbackConfig, data: ImageData, held_out: float) -> ImageData:
    """Return the task's data with the pictures that may teach it; the very same data where there are none.

    `held_out`: share of the fit split on which trials are judged. Raises `InputError` for a file that cannot be read.
    """
    learnt = lessons(config, data.name, lambda lesson: _picture(lesson, data.classes) is not None)
    pictures = [picture for lesson in learnt if (picture := _picture(lesson, data.classes)) is not None]
    joined = labelled.join(data, pictures, held_out)
    if learnt:
        logger.info("task %s learns from labelled pictures: %s", data.name, labelled.counts(data, joined))
    return joined


def _picture(lesson: Lesson, classes: Collection[str]) -> LabelledPicture | None:
    """Return what was kept as a picture; None where it is none, or the label no class of the task."""
    form, label = FORM.fullmatch(lesson.input.form), lesson.record.label
    if form is None or label not in classes:
        return None
    size = int(form[1]), int(form[2])
    if len(lesson.input.content) != 3 * size[0] * size[1]:
        return None
    pixels_HW3 = np.frombuffer(lesson.input.content, np.uint8).reshape(*size, 3)
    return LabelledPicture(pixels_HW3, str(label), lesson.part, lesson.record.slices)
