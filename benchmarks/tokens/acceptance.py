"""Tokens in the acceptance kit of GPUs: speed by gamma, the error of the latency table, and what bfloat16 changes.

Random weights serve for speed, which does not depend on them. For labels the embedded backbone and its task of digits
are trained first, as random ones tell classes apart by noise alone.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from pliant.benchmarks.results import Add, Target
from pliant.benchmarks.runs import medians_in_turns
from pliant.errors import OfflineError
from pliant.models.execution import BUCKETS
from pliant.precision import has_bfloat16
from pliant.profiling.timer import TimerConfig
from pliant.profiling.tokens.latency import LatencyConfig, profile
from pliant.tokens.artifact import GAMMAS, Backbone, Head, Task
from pliant.tokens.model import create_vit
from pliant.tokens.runtime import Execution, Payload, TokensRuntime, load_model
from pliant.training.data import digits
from pliant.training.tokens.foundation import FoundationConfig, from_timm, pretrain
from pliant.training.tokens.task import TaskConfig, train

ARCHITECTURE, TASKS, CLASSES, DIGEST = "vit_base_patch16_224", 3, 100, "random"
ERROR = 0.10  # of the latency table, at every batch
COST = 0.01  # share of pictures that bfloat16 may answer wrongly besides, at any gamma


@dataclass(frozen=True, slots=True)
class Config:
    """`batches`: at which speed is measured; targets are read at the last. `table`: gammas whose table is judged."""

    architecture: str = ARCHITECTURE
    gammas: tuple[int, ...] = GAMMAS
    batches: tuple[int, ...] = (1, 8, 32, 64)
    rounds: int = 20
    table: tuple[int, ...] = (-15, 0, 8)
    buckets: tuple[int, ...] = BUCKETS
    timer: TimerConfig = field(default_factory=TimerConfig)
    table_rounds: int = 9
    foundation: FoundationConfig = field(default_factory=FoundationConfig)
    task: TaskConfig = field(default_factory=TaskConfig)


FULL = Config()
TINY = Config(
    "test_vit",
    batches=(1, 2),
    rounds=1,
    table=(0,),
    buckets=(1, 2, 4),
    timer=TimerConfig(2, 7, 7),
    table_rounds=7,
    foundation=FoundationConfig(
        options={"img_size": 16, "patch_size": 4, "embed_dim": 24, "depth": 2, "num_heads": 2}, images=128
    ),
    task=TaskConfig(epochs=0.05, head_steps=5),
)


def measure(device: str, tiny: bool, add: Add) -> None:
    """Measure all parts on the device, and add each. On a CPU a call stands for its graph."""
    config = TINY if tiny else FULL
    backbone = backbone_of(config.architecture)
    tasks = [random_task(f"task{number}", backbone, number) for number in range(TASKS)]
    graphs = TokensRuntime(backbone, DIGEST, tasks, device, _execution(device, config.buckets))
    graphs.warm(config.gammas)
    eager = TokensRuntime(backbone, DIGEST, tasks, device, Execution(buckets=()))
    add("speed", *_speed(config, backbone.image_size, graphs, eager, device))
    del eager
    add("table", *_table(config, backbone.image_size, graphs, device))
    del graphs
    if not has_bfloat16(device):
        add("bfloat16", [], {"left out": "this device has no instructions for bfloat16"})
    elif not find_spec("sklearn"):
        add("bfloat16", [], {"left out": "the digits are in scikit-learn, which is not installed here"})
    else:
        add("bfloat16", *_bfloat16(config, device))


def _execution(
    device: str, buckets: tuple[int, ...], precision: Literal["float32", "bfloat16"] | None = None
) -> Execution:
    execution = Execution(precision, packed=False, buckets=buckets)
    return execution if torch.device(device).type == "cuda" else replace(execution, capture=lambda call: call)


def _speed(
    config: Config, size: int, graphs: TokensRuntime, eager: TokensRuntime, device: str
) -> tuple[list[Target], dict[str, Any]]:
    """Time both at every batch and gamma, in turns."""
    rows, ratios = [], {}
    for batch in config.batches:
        payloads = payloads_of(size, batch)
        calls = [partial(runtime.run, gamma, payloads) for gamma in config.gammas for runtime in (graphs, eager)]
        seconds = np.array(medians_in_turns(calls, config.rounds)).reshape(-1, 2)
        for gamma, (own, plain) in zip(config.gammas, seconds.tolist(), strict=True):
            speeds = {"graphs images/s": batch / own, "eager images/s": batch / plain}
            rows.append({"batch": batch, "gamma": gamma, **speeds})
            ratios[batch, gamma] = plain / own, seconds[config.gammas.index(0), 0] / own
    least, most, targets = config.batches[0], config.batches[-1], list[Target]()
    if torch.device(device).type != "cpu":  # they are those of ViT-B/16 and of graphs
        slowest = min(ratios[least, gamma][0] for gamma in config.gammas)
        targets = [
            Target(f"images/s of graphs over eager at batch {least}, worst gamma", slowest, ">=", 1.0, "x"),
            Target(f"images/s at gamma -15 over gamma 0, batch {most}", ratios[most, -15][1], ">=", 1.7, "x"),
            Target(f"images/s at gamma 8 over gamma 0, batch {most}", ratios[most, 8][1], ">=", 0.9, "x"),
        ]
    return targets, {"config": {"architecture": config.architecture, "rounds": config.rounds}, "rows": rows}


def _table(config: Config, size: int, runtime: TokensRuntime, device: str) -> tuple[list[Target], dict[str, Any]]:
    """Profile as a flow does, then measure every batch up to the largest bucket, and compare."""
    latency = LatencyConfig(config.table, config.buckets, config.timer)
    names = [f"task{number}" for number in range(TASKS)]
    predicted = profile(runtime, names, size, latency, device).latency
    batches, rows, worst = range(1, config.buckets[-1] + 1), [], 0.0
    for gamma in config.table:
        payloads = payloads_of(size, batches[-1])
        calls = [partial(runtime.run, gamma, payloads[:batch]) for batch in batches]
        measured = medians_in_turns(calls, config.table_rounds)
        ratios = [seconds / predicted.at(gamma, batch) for batch, seconds in zip(batches, measured, strict=True)]
        worst = max(worst, *(abs(ratio - 1) for ratio in ratios))
        rows.append({"gamma": gamma, "measured over predicted, by batch": ratios})
    name = f"error of the latency table, worst of batches 1 to {batches[-1]}"
    return [Target(name, worst, "<=", ERROR)], {"rows": rows}


def _bfloat16(config: Config, device: str) -> tuple[list[Target], dict[str, Any]]:
    """Compare the labels of held-out digits in both precisions, at every gamma."""
    data = digits("digit")
    backbone = pretrain(config.foundation, data, device)
    task = train(config.task, data, backbone, DIGEST, device)
    rows = data.split.test
    images, labels = data.images.batch(rows, backbone.image_size), data.labels[rows]
    payloads, most = [Payload(task.name, image) for image in images], config.buckets[-1]
    parts = [payloads[start : start + most] for start in range(0, len(payloads), most)]

    def answers(precision: Literal["float32", "bfloat16"]) -> dict[int, NDArray[np.int64]]:
        """Return the label of every picture, by gamma."""
        runtime = TokensRuntime(backbone, DIGEST, [task], device, _execution(device, config.buckets, precision))
        return {
            gamma: np.array([row.argmax() for part in parts for row in runtime.run(gamma, part).probabilities])
            for gamma in config.gammas
        }

    exact, lowered = answers("float32"), answers("bfloat16")
    table = [
        {
            "gamma": gamma,
            "labels changed": float(np.mean(exact[gamma] != lowered[gamma])),
            "right in float32": float(np.mean(exact[gamma] == labels)),
            "right in bfloat16": float(np.mean(lowered[gamma] == labels)),
        }
        for gamma in config.gammas
    ]
    cost = max(row["right in float32"] - row["right in bfloat16"] for row in table)
    target = Target("accuracy that bfloat16 costs, worst gamma", cost, "<=", COST)
    return [target], {"pictures": len(rows), "training": asdict(config.foundation), "rows": table}


def backbone_of(architecture: str) -> Backbone:
    """Return timm's backbone with its weights, or with random ones where its hub is out of reach."""
    try:
        return from_timm(architecture)
    except OfflineError as error:
        print(f"{error}. Random weights serve here: they take as long.", file=sys.stderr)
        vit = create_vit(architecture, {})
        size = int(vit.pretrained_cfg["input_size"][-1])
        weights = {name: w.numpy() for name, w in vit.state_dict().items()}
        return Backbone(architecture, {}, size, (0.5,) * 3, (0.5,) * 3, f"{architecture}, random weights", weights)


def random_task(name: str, backbone: Backbone, seed: int) -> Task:
    """Return a task of random prompts and heads on the backbone `DIGEST`."""
    rng, model = np.random.default_rng(seed), load_model(backbone)
    lengths = [gamma for gamma in GAMMAS if gamma >= 0]

    def drawn(*shape: int) -> NDArray[np.float32]:
        return rng.normal(0, 0.1, shape).astype(np.float32)

    heads = {gamma: Head(drawn(CLASSES, model.width), drawn(CLASSES)) for gamma in lengths}
    prompts = {gamma: drawn(model.depth, gamma, model.width) for gamma in lengths if gamma}
    return Task(name, tuple(map(str, range(CLASSES))), DIGEST, heads, prompts, {}, {}, "random")


def payloads_of(size: int, batch: int) -> list[Payload]:
    """Return random pictures, the tasks mixed."""
    pixel_BHWC = np.random.default_rng(batch).integers(0, 256, (batch, size, size, 3), dtype=np.uint8)
    return [Payload(f"task{i % TASKS}", image) for i, image in enumerate(pixel_BHWC)]
