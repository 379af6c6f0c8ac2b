"""Trains one task on a frozen backbone: linear heads, and deep prompts with a head of their own per gamma > 0.

Heads are fitted at gamma 0, at merged gammas (< 0) and at every operating point (heads.py). Prompts grow: those of a longer
gamma start as those of the next shorter one plus fresh ones, so all gammas together cost little more than the longest alone.
They learn together with a head, in whose place another is fitted on what they lead to. Accuracies are measured later, by
profiling.

Shape suffixes as in pliant/tokens/model.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pliant.errors import InputError
from pliant.precision import TRAINING_PRECISIONS, lowered
from pliant.progress import Progress, share, silent
from pliant.tokens.artifact import FLOAT32, LORA, SHALLOW, Backbone, Head, Task
from pliant.tokens.model import AdaptiveViT
from pliant.tokens.points import FIRST_POINT
from pliant.tokens.runtime import ROWS, Execution, TokensRuntime, load_model, normaliser
from pliant.training.data import ImageData
from pliant.training.pictures import AUGMENTATIONS, augmentation
from pliant.training.tokens.foundation import warm_cosine
from pliant.training.tokens.heads import fit as fit_head
from pliant.training.tokens.heads import fit_heads


@dataclass(frozen=True, slots=True)
class TaskConfig:
    """How heads and prompts are trained (OTAS: batch 32, 50 epochs, learning rate 0.002)."""

    gammas: tuple[int, ...] = (2, 4, 8)  # prompt lengths, ascending
    shallow: tuple[int, ...] = ()  # the same of prompts before the first block alone
    lora: tuple[int, ...] = ()  # ranks
    epochs: float = 2.0  # per gamma
    least_images: int = 0  # pictures drawn per gamma at least, so that small data sets are seen often enough
    batch: int = 32
    prompt_rate: float = 0.03
    lora_rate: float = 0.003
    held_out: float = 0.2  # share of the fit split on which heads are judged
    prompt_scale: float = 0.3  # standard deviation of fresh prompts
    head_rate: float = 0.01  # of the head that prompts learn together with
    head_steps: int = 300  # of a logistic regression, at most
    head_images: int | None = None  # pictures of the fit split for heads without prompts; None: all
    points: bool = True  # whether there are operating points beside gammas
    weight_decay: float = 1e-4
    augment: str = "none"  # see training/pictures.py
    precision: str = "auto"  # of the arithmetic while training, see pliant/precision.py
    seed: int = 0

    def __post_init__(self) -> None:
        for key, value, names in (
            ("augment", self.augment, AUGMENTATIONS),
            ("precision", self.precision, TRAINING_PRECISIONS),
        ):
            if value not in names:
                raise InputError(f"task.{key}", value, f"one of {', '.join(names)}")
        for key, values, most in (
            ("gammas", self.gammas, SHALLOW),
            ("shallow", self.shallow, LORA - SHALLOW),
            ("lora", self.lora, FIRST_POINT - LORA - 1),
        ):
            if list(values) != sorted(set(values)) or any(not 1 <= value <= most for value in values):
                raise InputError(f"task.{key}", list(values), f"numbers from 1 to {most}, ascending, each once")
        if not 0 < self.held_out < 1:
            raise InputError("task.held_out", self.held_out, "between 0 and 1")
        if self.head_images is not None and self.head_images < 1:
            raise InputError("task.head_images", self.head_images, "at least 1")


@dataclass(frozen=True, slots=True)
class Examples:
    """Pictures as bytes, and the function that normalises them: as floats they would need four times the memory."""

    pixel_NHWC: Tensor
    label_N: Tensor
    normalise: Callable[[Tensor], Tensor]

    def image(self, index: Tensor | slice) -> Tensor:
        """Return these pictures, normalised, [B, C, H, W]."""
        return self.normalise(self.pixel_NHWC[index])

    def part(self, chosen: slice) -> Examples:
        """Return these examples only."""
        return replace(self, pixel_NHWC=self.pixel_NHWC[chosen], label_N=self.label_N[chosen])


def train(
    config: TaskConfig,
    data: ImageData,
    backbone: Backbone,
    digest: str,
    device: str = "cpu",
    progress: Progress = silent,
    merged: Sequence[int] = (),
) -> Task:
    """Train a task and return it without accuracies (profiling/tokens/accuracy.py measures them).

    `digest`: of the backbone; `merged`: gammas below 0 that get heads of their own.
    """
    torch.manual_seed(config.seed)
    tuned = len(config.gammas) + len(config.shallow) + len(config.lora)
    heads_share = 50 if tuned else 100
    runtime = TokensRuntime(backbone, digest, [], device, Execution(precision=FLOAT32))
    points, fitted = fit_heads(
        *(runtime, data, backbone.image_size, config.held_out, config.head_steps, config.head_images, config.points),
        *(merged, share(progress, 0, heads_share)),
    )
    heads = {number: each.head for number, each in fitted.items()}
    judged = {number: each.judged for number, each in fitted.items() if number >= 0}
    prompts: dict[int, NDArray[np.float32]] = {}
    if tuned:
        model, examples = load_model(backbone).to(device), fit_examples(data, backbone, device)
        numbers, total = count(1), steps(config, examples) * tuned
        trained, plain = share(progress, heads_share, 100), linear(heads[0], device)
        prompt_LGD, head = torch.empty(model.depth, 0, model.width, device=device), plain
        for gamma in (*config.gammas, *(SHALLOW + n for n in config.shallow), *(LORA + rank for rank in config.lora)):
            deep = gamma <= SHALLOW  # which goes on from the shorter ones before it
            start_LGD = lengthened(config, prompt_LGD, gamma) if deep else fresh(config, model, gamma, device)
            prompt_LGD, head = train_prompts(
                *(config, model, examples, start_LGD, head if deep else plain, steps(config, examples)),
                lambda: trained(next(numbers), total),
            )
            feature_ND = prompted(config, model, examples.part(slice(0, config.head_images)), prompt_LGD)
            label_N = data.labels[data.split.fit][: len(feature_ND)]
            heads[gamma] = fit_head(feature_ND, label_N, len(data.classes), config.held_out, config.head_steps).head
            prompts[gamma] = _array(prompt_LGD)
    task = Task(data.name, data.classes, digest, heads, prompts, {}, {}, data.fingerprint)
    return replace(task, points=points, judged=judged)


def fit_examples(data: ImageData, backbone: Backbone, device: str) -> Examples:
    """Return the fit split on the device."""
    pixel_NHWC = torch.from_numpy(data.images.batch(data.split.fit, backbone.image_size)).to(device)
    label_N = torch.from_numpy(data.labels[data.split.fit]).to(device)
    return Examples(pixel_NHWC, label_N, normaliser(backbone, device))


def steps(config: TaskConfig, examples: Examples) -> int:
    """Return the training steps per gamma."""
    return max(1, int(max(config.epochs * len(examples.label_N), config.least_images) / config.batch))


def prompted(config: TaskConfig, model: AdaptiveViT, examples: Examples, prompt_LGD: Tensor) -> NDArray[np.float32]:
    """Return the class token's features of all examples with these prompts."""
    chunks = []
    for at in range(0, len(examples.label_N), ROWS):
        image_BCHW = examples.image(slice(at, at + ROWS))
        prompts_BLGD = prompt_LGD.expand(len(image_BCHW), -1, -1, -1)
        with torch.no_grad(), lowered(config.precision, image_BCHW.device):
            chunks.append(model(image_BCHW, 0, prompts_BLGD).float().cpu().numpy())
    return np.concatenate(chunks)


def linear(head: Head, device: str) -> nn.Linear:
    """Return a head as a module."""
    module = nn.Linear(head.weight.shape[1], len(head.bias))
    with torch.no_grad():
        module.weight.copy_(torch.from_numpy(head.weight))
        module.bias.copy_(torch.from_numpy(head.bias))
    return module.to(device)


def lengthened(config: TaskConfig, prompt_LGD: Tensor, gamma: int) -> Tensor:
    """Return the prompts followed by fresh ones, `gamma` in all."""
    layers, present, width = prompt_LGD.shape
    fresh = config.prompt_scale * torch.randn(layers, gamma - present, width, device=prompt_LGD.device)
    return torch.cat([prompt_LGD, fresh], dim=1)


def fresh(config: TaskConfig, model: AdaptiveViT, setting: int, device: str) -> Tensor:
    """Return shallow prompts, or LoRA of the identity, to learn from."""
    if setting < LORA:
        return config.prompt_scale * torch.randn(1, setting - SHALLOW, model.width, device=device)
    down_LRD = torch.randn(model.depth, setting - LORA, model.width, device=device) / model.width**0.5
    return torch.cat([down_LRD, down_LRD.new_zeros(*down_LRD.shape[:2], 3 * model.width)], dim=-1)


def train_prompts(
    config: TaskConfig,
    model: AdaptiveViT,
    examples: Examples,
    start_LGD: Tensor,
    start: nn.Linear,
    most: int,
    done: Callable[[], None],
) -> tuple[Tensor, nn.Linear]:
    """Return prompts, or LoRA, and a head after `most` steps from these; `done` is called after each step."""
    prompt_LGD = nn.Parameter(start_LGD)
    head = nn.Linear(start.in_features, start.out_features).to(start_LGD.device)
    head.load_state_dict(start.state_dict())
    inner = config.prompt_rate if start_LGD.shape[-1] == model.width else config.lora_rate
    rates, change = (inner, config.head_rate), augmentation(config.augment)
    groups = [{"params": [prompt_LGD]}, {"params": list(head.parameters())}]
    optimizer = torch.optim.AdamW(groups, lr=inner, weight_decay=config.weight_decay)
    for step in range(most):
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * warm_cosine(step, most, warmup=10)
        drawn = torch.randint(len(examples.label_N), (config.batch,), device=start_LGD.device)
        with lowered(config.precision, start_LGD.device):
            feature_BD = model(change(examples.image(drawn)), 0, prompt_LGD.expand(config.batch, -1, -1, -1))
        loss = cross_entropy(head(feature_BD.float()), examples.label_N[drawn])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        done()
    return prompt_LGD.detach(), head


def _array(tensor: Tensor) -> NDArray[np.float32]:
    return tensor.detach().cpu().numpy().copy()
