"""Trains one task on a frozen backbone: a linear head, and deep prompts with a head of their own per gamma > 0.

Prompts grow: those of a longer gamma start as those of the next shorter one plus fresh ones, so that all gammas together
cost little more than the longest alone. Merged settings (gamma < 0) need no training. Accuracies are profiling's business.

Shape suffixes as in pliant/tokens/model.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pliant.progress import Progress, silent
from pliant.tokens.artifact import Backbone, Head, Task
from pliant.tokens.model import AdaptiveViT
from pliant.tokens.runtime import load_model, normaliser
from training.data import ImageData
from training.tokens_foundation import warm_cosine


@dataclass(frozen=True, slots=True)
class TaskConfig:
    """How heads and prompts are trained (OTAS: batch 32, 50 epochs, learning rate 0.002)."""

    gammas: tuple[int, ...] = (2, 4, 8)  # prompt lengths, ascending
    epochs: float = 2.0  # per gamma
    batch: int = 32
    prompt_rate: float = 0.05
    head_rate: float = 0.01
    head_steps: int = 300  # full-batch steps of the plain head
    weight_decay: float = 1e-4
    seed: int = 0


@dataclass(frozen=True, slots=True)
class _Examples:
    image_NCHW: Tensor  # normalised
    label_N: Tensor


def train(
    config: TaskConfig,
    data: ImageData,
    backbone: Backbone,
    digest: str,
    device: str = "cpu",
    progress: Progress = silent,
) -> Task:
    """A task without accuracies (see profiling/tokens_accuracy.py, which fills them in)."""
    torch.manual_seed(config.seed)
    model = load_model(backbone).to(device)
    examples = _examples(data, backbone, device)
    done = _Counter(progress, 1 + _steps(config, examples) * len(config.gammas))
    head = _train_head(config, model, examples, len(data.classes))
    heads, prompts = {0: _stored(head)}, {}
    prompt_LGD = torch.empty(model.depth, 0, model.width, device=device)
    done()
    for gamma in config.gammas:
        fresh = 0.3 * torch.randn(model.depth, gamma - prompt_LGD.shape[1], model.width, device=device)
        prompt_LGD, head = _train_prompts(config, model, examples, torch.cat([prompt_LGD, fresh], dim=1), head, done)
        heads[gamma], prompts[gamma] = _stored(head), _array(prompt_LGD)
    return Task(data.name, data.classes, digest, heads, prompts, {}, {}, data.fingerprint)


def _examples(data: ImageData, backbone: Backbone, device: str) -> _Examples:
    pixels = torch.from_numpy(data.images.batch(data.split.fit, backbone.image_size)).to(device)
    return _Examples(normaliser(backbone, device)(pixels), torch.from_numpy(data.labels[data.split.fit]).to(device))


def _steps(config: TaskConfig, examples: _Examples) -> int:
    return max(1, int(config.epochs * len(examples.label_N) / config.batch))


def _train_head(config: TaskConfig, model: AdaptiveViT, examples: _Examples, classes: int) -> nn.Linear:
    """Logistic regression on the class token's features, which are computed once."""
    with torch.no_grad():
        feature_ND = torch.cat([model(images) for images in examples.image_NCHW.split(64)])
    head = nn.Linear(model.width, classes).to(feature_ND.device)
    optimizer = torch.optim.AdamW(head.parameters(), lr=config.head_rate, weight_decay=1e-3)
    for _ in range(config.head_steps):
        loss = cross_entropy(head(feature_ND), examples.label_N)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return head


def _train_prompts(
    config: TaskConfig, model: AdaptiveViT, examples: _Examples, start_LGD: Tensor, start: nn.Linear, done: _Counter
) -> tuple[Tensor, nn.Linear]:
    prompt_LGD = nn.Parameter(start_LGD)
    head = nn.Linear(start.in_features, start.out_features).to(start_LGD.device)
    head.load_state_dict(start.state_dict())
    rates = (config.prompt_rate, config.head_rate)
    groups = [{"params": [prompt_LGD]}, {"params": list(head.parameters())}]
    optimizer = torch.optim.AdamW(groups, lr=config.prompt_rate, weight_decay=config.weight_decay)
    steps = _steps(config, examples)
    for step in range(steps):
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * warm_cosine(step, steps, warmup=10)
        drawn = torch.randint(len(examples.label_N), (config.batch,), device=start_LGD.device)
        feature_BD = model(examples.image_NCHW[drawn], 0, prompt_LGD.expand(config.batch, -1, -1, -1))
        loss = cross_entropy(head(feature_BD), examples.label_N[drawn])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        done()
    return prompt_LGD.detach(), head


class _Counter:
    """Counts steps and passes them on."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0

    def __call__(self) -> None:
        self._done += 1
        self._progress(self._done, self._total)


def _stored(head: nn.Linear) -> Head:
    return Head(_array(head.weight), _array(head.bias))


def _array(tensor: Tensor) -> NDArray[np.float32]:
    return tensor.detach().cpu().numpy().copy()
