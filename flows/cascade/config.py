"""The settings of the cascade flow: values with defaults (flows/config.py reads them). Knows no Prefect."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from pydantic import Field

from pliant.cascade.plan import LEAST_TEXTS, PlanConfig
from pliant.cascade.simulated import ReferenceConfig
from pliant.errors import InputError
from pliant.flows import config
from pliant.flows.arithmetic import ArithmeticConfig
from pliant.flows.config import is_embedded, pretrained
from pliant.flows.feedback import FeedbackConfig
from pliant.precision import FLOAT32
from pliant.profiling.cascade.latency import LatencyConfig
from pliant.profiling.cascade.outputs import OutputsConfig
from pliant.settings import Fraction
from pliant.training.cascade.distil import DistilConfig
from pliant.training.classifier import ClassifierConfig
from pliant.training.starts import LARGE, ScratchConfig
from pliant.training.text_data import Shares
from pliant.training.texts import Columns


@dataclass(frozen=True, slots=True)
class LevelConfig:
    """One classifier. `start`: scratch (of `scratch`'s size), path:FOLDER or hub:NAME; `classifier.layers` cuts those.

    `fine_tune` false: it is taken over as it is, with its head and its classes.
    """

    name: str
    start: str = "scratch"
    scratch: ScratchConfig = field(default_factory=ScratchConfig)
    classifier: ClassifierConfig = field(default_factory=ClassifierConfig)
    fine_tune: bool = True

    def __post_init__(self) -> None:
        config.check_name("name of a level", self.name)
        if not self.fine_tune and (self.start == "scratch" or self.classifier.layers is not None):
            wanted = "path:FOLDER or hub:NAME without classifier.layers, as it is not trained (fine_tune = false)"
            raise InputError(f"start of level {self.name}", self.start, wanted)
        if re.fullmatch(r"bag|exit\d+", self.name):
            raise InputError(
                "name of a level", self.name, "another than those of distilled levels, bag and exit1, exit2, ..."
            )
        scheme, _, rest = self.start.partition(":")
        if self.start != "scratch" and (scheme not in ("path", "hub") or not rest):
            raise InputError(f"start of level {self.name}", self.start, "scratch, path:FOLDER or hub:NAME")
        if self.start == "scratch" and self.classifier.max_length > self.scratch.positions:
            wanted = f"at most its scratch.positions, {self.scratch.positions}"
            raise InputError(f"classifier.max_length of level {self.name}", self.classifier.max_length, wanted)


@dataclass(frozen=True, slots=True)
class TaskConfig:
    """`data`: docstrings:TASK, parquet:PATH, csv:PATH, json:PATH or hub:NAME (see training/texts.py). `name` renames it.

    `unlabelled`: further texts of its kind, with which the small levels learn what the large model says and, where there are
    enough, the cascade is planned: parquet:PATH, csv:PATH or json:PATH with the same columns, of which labels are not read.
    `data` None: there are no others, and `unlabelled` and `name` are given.
    """

    data: str | None = "docstrings:package"
    name: str | None = None
    columns: Columns = field(default_factory=Columns)  # of a table
    unlabelled: str | None = None
    limit: int | None = None  # texts, for a first try on large data
    shares: Shares = field(default_factory=Shares)
    levels: tuple[LevelConfig, ...] = ()  # in place of the flow's

    def __post_init__(self) -> None:
        if self.name is not None:
            config.check_name("name of a task", self.name)


@dataclass(frozen=True, slots=True)
class GateConfig(config.GateConfig):
    """`tolerance`: accuracy, and share of the simulated utility, that a challenger may fall short by."""

    confidence: Fraction = 0.95  # of the bound on how far a test accuracy may lie below its target by chance


@dataclass(frozen=True, slots=True)
class LearnConfig:
    """How texts that a service kept count, and those without labels (flows/cascade/feedback.py).

    `rows`: such texts from which on a plan is made with them alone; fewer join the data set's, if they have labels.
    `levels`: whether classifiers are trained on labelled ones as well.
    """

    rows: Annotated[int, Field(ge=LEAST_TEXTS)] = 1000  # a promise of one point needs some 430, and more to be cheap
    levels: bool = False


LEVELS = (
    LevelConfig(
        "large", scratch=LARGE, classifier=ClassifierConfig(epochs=2, rate=2e-3, head_rate=2e-3, smoothing=0.1)
    ),
)
"""Where the settings name no levels: of the data that comes with Pliant, and where no pretrained model can be had."""
FINE_TUNING = ClassifierConfig(epochs=16, batch=16, rate=2e-4, head_rate=2e-3)


@dataclass(frozen=True, slots=True)
class CascadeFlowConfig(config.FlowConfig):
    """`levels`: the classifiers of every task that names none of its own, ascending in size; the last is the large model.

    From that a bag of n-grams and exits on its layers are distilled (`distil`). `feedback`: the labels to learn from, if
    any. Where no levels are named, that of tasks with data of your own starts from a pretrained model if one can be had.
    """

    tasks: tuple[TaskConfig, ...] = (TaskConfig(),)
    levels: tuple[LevelConfig, ...] = LEVELS
    distil: DistilConfig = field(default_factory=DistilConfig)
    arithmetic: ArithmeticConfig = field(default_factory=ArithmeticConfig)
    outputs: OutputsConfig = field(default_factory=OutputsConfig)
    latency: LatencyConfig = field(default_factory=LatencyConfig)
    # 4 points: the embedded corpus has too few held-out texts to prove a smaller drop.
    plan: PlanConfig = field(default_factory=lambda: PlanConfig(drop=0.04))
    gate: GateConfig = field(default_factory=GateConfig)
    reference: ReferenceConfig = field(
        default_factory=lambda: ReferenceConfig(seconds=1.0)
    )  # the simulation takes long
    feedback: FeedbackConfig = field(default_factory=FeedbackConfig)
    learn: LearnConfig = field(default_factory=LearnConfig)

    def levels_of(self, task: TaskConfig) -> tuple[LevelConfig, ...]:
        """Return the task's levels. Raises `InputError` for none, or two of one name."""
        levels = task.levels or self.levels
        config.check_distinct("levels", [level.name for level in levels], "at least one, each of its own name")
        return levels


def sizes(config: CascadeFlowConfig) -> str:
    """Return what the flow trains and measures, in one sentence for people."""
    used = dict.fromkeys(level for task in config.tasks for level in config.levels_of(task))
    levels = ", ".join(
        f"{level.name} ({level.scratch.layers} layers of width {level.scratch.width}, {level.classifier.epochs:g} epochs)"
        if level.start == "scratch"
        else f"{level.name} ({level.start})"
        for level in used
    )
    distilled = ", a bag of n-grams distilled from it" if config.distil.bag else ""
    exits = "" if config.distil.exits == () else ", and exits on its layers"
    return f"{', '.join(task.data or str(task.unlabelled) for task in config.tasks)} with {levels}{distilled}{exits}"


def read(source: config.Source = None, overrides: Mapping[str, Any] | None = None) -> CascadeFlowConfig:
    """Return the settings from a TOML file or its content, with `overrides` laid over its top level.

    Two overrides are short forms: `data`, a list of `[NAME=]ADDRESS`, for `tasks`, and `limit` for that of every task.
    """
    values = dict(overrides or {})
    addresses, limit = values.pop("data", None), values.pop("limit", None)
    if addresses is not None:
        values["tasks"] = config.parse_addresses(addresses)
    flow_config = config.read(CascadeFlowConfig, source, values)
    if limit is not None:
        flow_config = replace(flow_config, tasks=tuple(replace(task, limit=limit) for task in flow_config.tasks))
    own = [task for task in flow_config.tasks if not (task.levels or is_embedded(task.data or ""))]
    if own and flow_config.levels == LEVELS and (address := pretrained()):
        levels = (LevelConfig("large", address, classifier=FINE_TUNING),)
        tasks = tuple(replace(task, levels=levels) if task in own else task for task in flow_config.tasks)
        flow_config = replace(flow_config, tasks=tasks)
    for task in flow_config.tasks:
        flow_config.levels_of(task)
    for part in ("outputs", "latency"):
        precision = getattr(flow_config, part).execution.precision
        if precision != FLOAT32:
            raise InputError(f"{part}.execution.precision", precision, "left out: arithmetic.precision says it for all")
    return flow_config
