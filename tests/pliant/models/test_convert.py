"""Weights are converted once; what a model computes as it is constructed keeps its type."""

from __future__ import annotations

import torch
from torch import nn

from pliant.models.convert import convert


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.tied = nn.Linear(4, 4)
        self.tied.weight = self.layer.weight
        self.register_buffer("mean", torch.ones(4))
        self.register_buffer("steps", torch.arange(4))
        self.register_buffer("frequencies", torch.ones(4) / 3, persistent=False)


def test_weights_and_stored_buffers_are_converted_and_frequencies_and_numbers_are_not():
    model = Model()
    assert convert(model, torch.bfloat16) is model
    converted = {name: tensor.dtype for name, tensor in model.state_dict().items()}
    assert converted.pop("steps") == torch.int64
    assert set(converted.values()) == {torch.bfloat16}
    assert model.frequencies.dtype == torch.float32
    assert model.tied.weight is model.layer.weight
    assert model.layer(torch.ones(1, 4, dtype=torch.bfloat16)).dtype == torch.bfloat16
