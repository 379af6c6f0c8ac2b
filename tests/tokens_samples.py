"""Tiny tokens artifacts for tests: random weights, 16x16 images, two layers of width 24, 17 tokens an image.

Weights are drawn wide enough that gammas and tasks differ visibly in their outputs. Equal arguments give equal values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pliant.latency import LatencyTable
from pliant.tokens.artifact import GAMMAS, Backbone, Head, Profile, RateRule, Task, Variant, VariantTask
from pliant.tokens.model import create_vit

ARCHITECTURE = "vit_tiny_patch16_224"
OPTIONS = {"img_size": 16, "patch_size": 4, "embed_dim": 24, "depth": 2, "num_heads": 2}
IMAGE_SIZE, DEPTH, WIDTH = 16, 2, 24


def tiny_backbone(seed: int = 0, **options: int) -> Backbone:
    """`options` of the architecture, in place of OPTIONS."""
    rng = np.random.default_rng(seed)
    chosen = {**OPTIONS, **options}
    state = create_vit(ARCHITECTURE, chosen).state_dict()
    weights = {name: _weight(rng, name, tuple(tensor.shape)) for name, tensor in state.items()}
    mean, std = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)
    return Backbone(
        ARCHITECTURE, chosen, int(chosen["img_size"]), mean, std, source=f"random weights, seed {seed}", weights=weights
    )


def tiny_task(name: str, classes: Sequence[str], digest: str, seed: int = 0, gammas: Sequence[int] = (2, 4, 8)) -> Task:
    """A task on the backbone of `digest`, with prompts and a head for each of `gammas` and every merged setting."""
    rng = np.random.default_rng(seed)
    settings = sorted({g for g in GAMMAS if g <= 0} | set(gammas))
    accuracy = {gamma: round(0.8 + gamma / 100, 3) for gamma in settings}
    return Task(
        name=name,
        classes=tuple(classes),
        backbone=digest,
        heads={gamma: _head(rng, len(classes)) for gamma in (0, *gammas)},
        prompts={gamma: _normal(rng, (DEPTH, gamma, WIDTH)) for gamma in gammas},
        accuracy=accuracy,
        test_accuracy={gamma: round(value - 0.01, 3) for gamma, value in accuracy.items()},
        data=f"random, seed {seed}",
    )


def tiny_profile(digest: str, device: str, gammas: Sequence[int] = GAMMAS) -> Profile:
    """Prompts cost, merging saves: a launch takes 1 ms and each image (21 + gamma) * 0.1 ms."""
    batches = (1, 2, 4, 8, 16)
    seconds = tuple(tuple(0.001 + (21 + gamma) * 1e-4 * batch for batch in batches) for gamma in gammas)
    return Profile(
        backbone=digest,
        device=device,
        latency=LatencyTable(tuple(gammas), batches, seconds),
        spread=tuple(tuple(value / 10 for value in row) for row in seconds),
        memory=tuple(tuple(1000 * batch for batch in batches) for _ in gammas),
        rule=RateRule(below=(100.0, 200.0), gammas=(max(gammas), 0, min(gammas))),
    )


def tiny_variant(
    name: str, tasks: Mapping[str, Sequence[str]], device: str, depth: int = DEPTH, loading: float = 0.5
) -> Variant:
    """`tasks`: name -> classes. Deeper is slower and more accurate."""
    rng = np.random.default_rng(depth)
    accuracy = round(0.6 + depth / 100, 3)
    batches = (1, 2, 4, 8, 16)
    return Variant(
        name=name,
        backbone=tiny_backbone(depth, depth=depth),
        tasks={
            task: VariantTask(tuple(classes), _head(rng, len(classes)), accuracy, accuracy - 0.01, "random")
            for task, classes in tasks.items()
        },
        device=device,
        latency=LatencyTable((0,), batches, (tuple(depth * (0.001 + 0.001 * batch) for batch in batches),)),
        loading=loading,
    )


def random_images(count: int, seed: int = 0) -> NDArray[np.uint8]:
    """[count, 16, 16, 3]"""
    return np.random.default_rng(seed).integers(0, 256, (count, IMAGE_SIZE, IMAGE_SIZE, 3), dtype=np.uint8)


def _weight(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Layer norms stay near 1, everything else is drawn around 0."""
    around = 1.0 if "norm" in name and name.endswith("weight") else 0.0
    return np.float32(around) + _normal(rng, shape)


def _head(rng: np.random.Generator, classes: int) -> Head:
    return Head(weight=_normal(rng, (classes, WIDTH)), bias=_normal(rng, (classes,)))


def _normal(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float32]:
    return rng.normal(0, 0.3, shape).astype(np.float32)
