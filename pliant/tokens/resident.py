"""Prompts and heads of all tasks on the device, padded to one shape, to be gathered per sample. Knows no model and no batch.

Where a captured graph reads them, tensors keep their addresses: there is spare room, and a task that fits is copied in.

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
    """Of all tasks at one gamma. Classes that a task lacks have weight 0 and bias -inf, so probability 0."""

    weight_TKD: Tensor
    bias_TK: Tensor
    prompts_TLGD: Tensor  # G is 0 for the plain head

    def like(self, other: Adapters) -> bool:
        pairs = zip(self._all(), other._all(), strict=True)
        return all(own.shape == others.shape for own, others in pairs)

    def take(self, other: Adapters) -> None:
        for own, others in zip(self._all(), other._all(), strict=True):
            own.copy_(others)

    def to(self, device: torch.device, dtype: torch.dtype) -> Adapters:
        """Prompts in the model's type; heads stay in float32, they cost next to nothing."""
        weight_TKD, bias_TK, prompts_TLGD = self._all()
        return Adapters(weight_TKD.to(device), bias_TK.to(device), prompts_TLGD.to(device, dtype))

    def _all(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.weight_TKD, self.bias_TK, self.prompts_TLGD


class Resident:
    """`at[gamma]`: the adapters of each gamma that all tasks share. `spare`: leave room for more tasks."""

    def __init__(self, device: torch.device, dtype: torch.dtype, spare: bool) -> None:
        self.at: dict[int, Adapters] = {}
        self._device, self._dtype, self._spare = device, dtype, spare

    def fill(self, tasks: Sequence[Task]) -> bool:
        """Take these tasks, in this order of rows, in place of all former ones.

        True where tensors had to be replaced: whatever holds their addresses must be made anew. All or nothing.
        """
        gammas = set.intersection(*(set(task.heads) for task in tasks)) if tasks else set()
        made = {gamma: self._stacked(tasks, gamma).to(self._device, self._dtype) for gamma in gammas}
        fits = made.keys() == self.at.keys() and all(self.at[gamma].like(one) for gamma, one in made.items())
        if not (self._spare and fits):
            self.at = made
            return True
        for gamma, adapters in made.items():
            self.at[gamma].take(adapters)
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
        """The next power of two, at least 8, where room is left."""
        return max(8, 1 << (count - 1).bit_length()) if self._spare else count
