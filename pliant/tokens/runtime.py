"""Runs a batch of mixed tasks on a device at one gamma. Knows tensors and the device; decides nothing.

The prompts and heads of all tasks stay on the device, padded to one shape and gathered per sample.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pliant.errors import BackboneError, InputError
from pliant.tokens.artifact import Backbone, Task
from pliant.tokens.model import AdaptiveViT, create_vit


@dataclass(frozen=True, slots=True)
class Payload:
    """One image to classify: uint8 [H, W, 3], already at the backbone's image size."""

    task: str
    image: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Run:
    """What one launch gave: class probabilities per payload, and the seconds it took on the device."""

    probabilities: tuple[NDArray[np.float32], ...]
    seconds: float


def device_class(device: str) -> str:
    """The name under which a profile is valid: the GPU's model, or the CPU's architecture with the thread count.

    Raises `InputError` for a device that is not there.
    """
    try:
        if torch.device(device).type == "cuda":
            return torch.cuda.get_device_name(torch.device(device))
    except (RuntimeError, AssertionError) as error:  # the latter where torch was built without CUDA
        told = str(error).splitlines()[0]
        raise InputError("device", device, f"one that torch finds on this machine ({told})") from error
    return f"cpu-{platform.machine()}-{torch.get_num_threads()}t"


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Run with this many torch threads (None: as many as there are), then with as many as before."""
    if count is not None and count < 1:
        raise InputError("threads", count, "at least 1")
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class TokensRuntime:
    """A backbone on a device with every task's prompts and heads resident.

    Serves the gammas that all its tasks were trained for. Raises `BackboneError` for a task made for another backbone.
    """

    def __init__(self, backbone: Backbone, digest: str, tasks: Sequence[Task], device: str = "cpu") -> None:
        self._device = torch.device(device)
        self._digest = digest
        self._model = load_model(backbone).to(self._device)
        self._image_size = backbone.image_size
        self._normalise = normaliser(backbone, self._device)
        self._tasks: dict[str, Task] = {}
        self._row: dict[str, int] = {}
        self._heads: dict[int, tuple[Tensor, Tensor]] = {}
        self._prompts_TLGD: dict[int, Tensor] = {}
        self.update(tasks)

    def update(self, tasks: Sequence[Task]) -> None:
        """Add tasks, or replace those of the same name; takes effect with the next run.

        All or nothing. Raises `InputError` for a task that lacks a gamma which is being served.
        """
        for task in tasks:
            self._check(task)
        self._tasks |= {task.name: task for task in tasks}
        self._row = {name: row for row, name in enumerate(self._tasks)}
        gammas = set.intersection(*(set(task.heads) for task in self._tasks.values())) if self._tasks else set()
        self._heads = {gamma: self._stack_heads(gamma) for gamma in gammas}
        self._prompts_TLGD = {gamma: self._stack_prompts(gamma) for gamma in gammas if gamma > 0}

    def _check(self, task: Task) -> None:
        if task.backbone != self._digest:
            raise BackboneError(
                f"task {task.name} was made for backbone {task.backbone[:12]}, but the one loaded is {self._digest[:12]}"
            )
        lacking = sorted(set(self._heads) - set(task.heads))
        if lacking:
            raise InputError(
                f"task {task.name}", f"without gamma {lacking}", f"trained for all of {sorted(self._heads)}"
            )

    def run(self, gamma: int, payloads: Sequence[Payload]) -> Run:
        """Classify a batch at one gamma, tasks mixed as they come."""
        start = time.perf_counter()
        self._check_known(gamma, payloads)
        with torch.inference_mode():
            image_BCHW = self._normalise(self._pixels(payloads))
            task_B = torch.tensor([self._row[p.task] for p in payloads], device=self._device)
            prompts_BLGD = self._prompts_TLGD[gamma][task_B] if gamma > 0 else None
            feature_BD = self._model(image_BCHW, max(-gamma, 0), prompts_BLGD)
            weight_TKD, bias_TK = self._heads[max(gamma, 0)]
            logit_BK = torch.einsum("bd,bkd->bk", feature_BD, weight_TKD[task_B]) + bias_TK[task_B]
            probability_BK = logit_BK.softmax(-1).cpu().numpy()  # waits for the device
        classes = [len(self._tasks[p.task].classes) for p in payloads]
        rows = tuple(row[:count].copy() for row, count in zip(probability_BK, classes, strict=True))
        return Run(rows, time.perf_counter() - start)

    @property
    def width(self) -> int:
        return self._model.width

    def features(self, image_BHWC: NDArray[np.uint8]) -> NDArray[np.float32]:
        """The backbone's own output at gamma 0, [B, D], without any task."""
        with torch.inference_mode():
            pixels_BHWC = torch.from_numpy(np.ascontiguousarray(image_BHWC)).to(self._device)
            feature_BD: NDArray[np.float32] = self._model(self._normalise(pixels_BHWC)).cpu().numpy()
        return feature_BD

    def _check_known(self, gamma: int, payloads: Sequence[Payload]) -> None:
        if max(gamma, 0) not in self._heads:
            raise InputError("gamma", gamma, f"at most 0 or one of {sorted(self._heads)}")
        for payload in payloads:
            if payload.task not in self._row:
                raise InputError("task", payload.task, f"one of {', '.join(self._row)}")

    def _pixels(self, payloads: Sequence[Payload]) -> Tensor:
        shape = (self._image_size, self._image_size, 3)
        for payload in payloads:
            if payload.image.shape != shape or payload.image.dtype != np.uint8:
                found = f"{payload.image.dtype} of shape {payload.image.shape}"
                raise InputError("image", found, f"uint8 of shape {shape}")
        return torch.from_numpy(np.stack([p.image for p in payloads])).to(self._device, non_blocking=True)

    def _stack_heads(self, gamma: int) -> tuple[Tensor, Tensor]:
        """All heads of one gamma as [T, K, D] and [T, K]; classes that a task lacks get probability 0."""
        most = max(len(task.classes) for task in self._tasks.values())
        weight_TKD = torch.zeros(len(self._tasks), most, self._model.width)
        bias_TK = torch.full((len(self._tasks), most), -torch.inf)
        for row, task in enumerate(self._tasks.values()):
            count = len(task.classes)
            weight_TKD[row, :count] = torch.from_numpy(task.head(gamma).weight)
            bias_TK[row, :count] = torch.from_numpy(task.head(gamma).bias)
        return weight_TKD.to(self._device), bias_TK.to(self._device)

    def _stack_prompts(self, gamma: int) -> Tensor:
        stacked = np.stack([task.prompts[gamma] for task in self._tasks.values()])
        return torch.from_numpy(stacked).to(self._device)


def normaliser(backbone: Backbone, device: torch.device | str) -> Callable[[Tensor], Tensor]:
    """From pixels, uint8 [B, H, W, C], to the backbone's input, float [B, C, H, W]."""
    mean_C11 = torch.tensor(backbone.mean, device=device).view(3, 1, 1)
    std_C11 = torch.tensor(backbone.std, device=device).view(3, 1, 1)
    return lambda pixel_BHWC: (pixel_BHWC.permute(0, 3, 1, 2).float() / 255 - mean_C11) / std_C11


def load_model(backbone: Backbone) -> AdaptiveViT:
    """The backbone as a module, frozen and in evaluation mode."""
    vit = create_vit(backbone.architecture, backbone.options)
    vit.load_state_dict({name: torch.from_numpy(np.array(w)) for name, w in backbone.weights.items()})
    model = AdaptiveViT(vit).eval()
    model.requires_grad_(False)
    return model
