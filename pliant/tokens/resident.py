"""Prompts and heads of all tasks on the device, padded to one shape, so that a mixed batch can gather them per sample.

A captured CUDA graph reads tensors by address. There, tensors have spare room, and a task that fits is copied in. The
module does not know about models or batches.

Shape suffixes: T tasks (rows), L layers, G prompts, K classes, D width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pliant.tokens.artifact import Task


@dataclass(frozen=True, slots=True)
class Adapters:
    """Prompts and heads of all tasks at one gamma. A class that a task lacks has weight 0 and bias -inf: probability 0."""

    weight_TKD: Tensor
    bias_TK: Tensor
    prompts_TLGD: Tensor  # no prompts (G = 0) at gamma 0

    def has_shapes_of(self, other: Adapters) -> bool:
        """Return whether all tensors have the shapes of the other's."""
        pairs = zip(self._tensors(), other._tensors(), strict=True)
        return all(own.shape == others.shape for own, others in pairs)

    def copy_from(self, other: Adapters) -> None:
        """Copy the values of the other's tensors into these, which keep their addresses."""
        for own, others in zip(self._tensors(), other._tensors(), strict=True):
            own.copy_(others)

    def to(self, device: torch.device, dtype: torch.dtype) -> Adapters:
        """Return them on the device: prompts in the model's type, heads in float32, which costs next to nothing."""
        weight_TKD, bias_TK, prompts_TLGD = self._tensors()
        return Adapters(weight_TKD.to(device), bias_TK.to(device), prompts_TLGD.to(device, dtype))

    def _tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.weight_TKD, self.bias_TK, self.prompts_TLGD


class ResidentAdapters:
    """The adapters on the device: `at[gamma]` for every gamma that all tasks share.

    With `spare`, tensors have room for more tasks and classes than there are.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype, spare: bool) -> None:
        self.at: dict[int, Adapters] = {}
        self._device, self._dtype, self._spare = device, dtype, spare

    def fill(self, tasks: Sequence[Task]) -> bool:
        """Replace all tasks by these; their order is the order of the rows. All of them are taken, or none.

        Returns True where tensors were replaced, so that a captured graph, which holds their addresses, must be
        renewed.
        """
        gammas = set.intersection(*(set(task.heads) for task in tasks)) if tasks else set()
        stacked = {gamma: self._stacked(tasks, gamma).to(self._device, self._dtype) for gamma in gammas}
        fits = stacked.keys() == self.at.keys() and all(
            self.at[gamma].has_shapes_of(adapters) for gamma, adapters in stacked.items()
        )
        if not (self._spare and fits):
            self.at = stacked
            return True
        for gamma, adapters in stacked.items():
            self.at[gamma].copy_from(adapters)
        return False

    def _stacked(self, tasks: Sequence[Task], gamma: int) -> Adapters:
        heads: Mapping[str, tuple[Tensor, Tensor]] = {
            task.name: (torch.tensor(task.head(gamma).weight), torch.tensor(task.head(gamma).bias)) for task in tasks
        }
        rows = self._room(len(tasks))
        classes = self._room(max(len(bias_K) for _, bias_K in heads.values()))
        weight_TKD = torch.zeros(rows, classes, next(iter(heads.values()))[0].shape[1])
        bias_TK = torch.full((rows, classes), -torch.inf)
        for row, (weight_KD, bias_K) in enumerate(heads.values()):
            weight_TKD[row, : len(bias_K)], bias_TK[row, : len(bias_K)] = weight_KD, bias_K
        return Adapters(weight_TKD, bias_TK, self._prompts(tasks, gamma, rows))

    def _prompts(self, tasks: Sequence[Task], gamma: int, rows: int) -> Tensor:
        if gamma == 0:
            return torch.zeros(rows, 0, 0, 0)
        known_TLGD = torch.stack([torch.tensor(task.prompts[gamma]) for task in tasks])
        return torch.cat([known_TLGD, known_TLGD.new_zeros(rows - len(tasks), *known_TLGD.shape[1:])])

    def _room(self, count: int) -> int:
        """Return how many rows to reserve for `count`: the next power of two, at least 8, where room is spared."""
        return max(8, 1 << (count - 1).bit_length()) if self._spare else count
