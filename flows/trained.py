"""What a run publishes of models that it trained: their packages, and a figure of their curves. Knows no system."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from pliant.flows.release import TRAINING, commit
from pliant.registry.package import Package
from pliant.training.classifier import Curves

matplotlib.use("Agg")


def described(package: Package, model: Any, notes: Mapping[str, Any], *shape: str) -> Package:
    """Return the package of a model of transformers with its size and its data, and its stage's notes as a tag.

    `shape`: further keys of the model's configuration that say how large it is.
    """
    config = json.loads(model.config)
    keys = ("model_type", "num_hidden_layers", "hidden_size", *shape)
    size = {"parameters": sum(array.size for array in model.weights.values())}
    params = {**package.params, **size, **{key: config[key] for key in keys if key in config}}
    return noted(replace(package, params=params), model, notes)


def noted(package: Package, model: Any, notes: Mapping[str, Any]) -> Package:
    """Return the package of a model with its data, and its stage's notes as a tag."""
    tags = {"pliant.git_commit": commit(), "pliant.data": model.data, TRAINING: json.dumps(dict(notes))}
    return replace(package, tags=tags)


def draw_curves(curves: Mapping[str, Curves]) -> Figure:
    """Draw per model the loss in training (dashed) and on held-out texts, and the held-out score, over the epochs."""
    drawn = Figure(figsize=(9, 4), layout="constrained")
    left, right = drawn.subplots(1, 2)
    for index, (name, curve) in enumerate(curves.items()):
        epochs, colour = np.arange(1, len(curve.loss) + 1), f"C{index % 10}"
        left.plot(epochs, curve.train_loss, linestyle="--", linewidth=1.5, color=colour)
        left.plot(epochs, curve.loss, marker="o", linewidth=2, color=colour, label=name)
        right.plot(epochs, curve.score, marker="o", linewidth=2, color=colour, label=name)
    left.set(xlabel="epoch", ylabel="loss per text (dashed: in training)", title="Loss")
    right.set(xlabel="epoch", ylabel="on held-out texts", title="Accuracy (a regression: Pearson's r)")
    for axes in (left, right):
        axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
        axes.grid(alpha=0.3)
    left.legend()
    return drawn
