"""Chooses the learning rate of a task's prompts by short trials: prompts are sensitive to it, and backbones differ.

Every rate trains prompts of the longest gamma on most of the fit split, from the same start and with the same draws,
and is judged by its accuracy on the rest of the fit split. Profiling and test pictures are not used.

Shape suffixes as in pliant/tokens/model.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from pliant.progress import Progress, silent
from pliant.tokens.artifact import Backbone
from pliant.tokens.model import AdaptiveViT
from pliant.tokens.runtime import load_model
from pliant.training.data import ImageData
from pliant.training.precision import lowered
from pliant.training.tokens.task import Examples, TaskConfig, fit_examples, lengthened, train_head, train_prompts


@dataclass(frozen=True, slots=True)
class Sweep:
    """Accuracy of each rate's trial on the held-out part of the fit split, and of the plain head (gamma 0) there."""

    rates: tuple[float, ...]
    accuracy: tuple[float, ...]
    plain: float

    @property
    def best(self) -> float:
        """The rate with the best trial; among equals the smallest."""
        return min(zip(self.rates, self.accuracy, strict=True), key=lambda pair: (-pair[1], pair[0]))[0]


def sweep(
    config: TaskConfig, data: ImageData, backbone: Backbone, device: str = "cpu", progress: Progress = silent
) -> Sweep:
    """Run one trial for each of `config.prompt_rates`."""
    torch.manual_seed(config.seed)
    model = load_model(backbone).to(device)
    examples = fit_examples(data, backbone, device)
    cut = max(1, round(len(examples.label_N) * (1 - config.held_out)))
    fit, judge = examples.part(slice(0, cut)), examples.part(slice(cut, None))
    head = train_head(config, model, fit, len(data.classes))
    accuracies = []
    for rate in config.prompt_rates:
        prompt_LGD, trained = _trial(replace(config, prompt_rate=rate), model, fit, head)
        accuracies.append(_accuracy(config, model, trained, judge, prompt_LGD))
        progress(len(accuracies), len(config.prompt_rates))
    return Sweep(config.prompt_rates, tuple(accuracies), _accuracy(config, model, head, judge, None))


def _trial(config: TaskConfig, model: AdaptiveViT, fit: Examples, head: nn.Linear) -> tuple[Tensor, nn.Linear]:
    torch.manual_seed(config.seed + 1)  # the same for every rate
    empty_LGD = torch.empty(model.depth, 0, model.width, device=fit.label_N.device)
    start_LGD = lengthened(config, empty_LGD, config.gammas[-1])
    count = max(1, config.trial_images // config.batch)
    return train_prompts(config, model, fit, start_LGD, head, count, lambda: None)


def _accuracy(
    config: TaskConfig, model: AdaptiveViT, head: nn.Linear, judge: Examples, prompt_LGD: Tensor | None
) -> float:
    right = 0
    for at in range(0, len(judge.label_N), 64):
        label_B = judge.label_N[at : at + 64]
        prompts_BLGD = None if prompt_LGD is None else prompt_LGD.expand(len(label_B), -1, -1, -1)
        with torch.no_grad(), lowered(config.precision, label_B.device):
            feature_BD = model(judge.image(slice(at, at + 64)), 0, prompts_BLGD)
            right += int((head(feature_BD.float()).argmax(-1) == label_B).sum())
    return right / len(judge.label_N)
