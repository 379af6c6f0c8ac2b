"""Converts a model's weights to another precision, once. Knows modules only."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import nn

M = TypeVar("M", bound=nn.Module)


def convert(model: M, dtype: torch.dtype) -> M:
    """Return the model, whose weights are of this type from now on.

    What a model computes as it is constructed, such as the frequencies of rotary embeddings, keeps its type: in half
    precision late positions would fall together.
    """
    stored = set(model.state_dict())
    tensors = (*model.named_parameters(), *((name, each) for name, each in model.named_buffers() if name in stored))
    for _, tensor in tensors:
        if tensor.is_floating_point():
            tensor.data = tensor.data.to(dtype)
    return model
