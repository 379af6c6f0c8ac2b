"""The predictor of output lengths on its device, in the precision in which it is fastest there."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pliant.packing.artifact import Predictor
from pliant.packing.engine.model import LengthModel, PredictorModel
from pliant.precision import has_bfloat16


def load(predictor: Predictor, device: str) -> PredictorModel:
    """Return the predictor, ready to run on the device. Raises `ArtifactError` if its weights do not fit it."""
    model = PredictorModel.of(predictor)
    place(model.model, torch.device(device))
    return model


def place(model: LengthModel, device: torch.device) -> None:
    """Move a length model to its device, with the encoder in the device's precision.

    The heads, which are small, stay in float32: their inputs are promoted to it. Inputs of a call come from the CPU.
    """
    model.encoder.to(precision_of(device))
    model.to(device)

    def bring(_module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(tensor.to(device, non_blocking=True) for tensor in inputs)

    model.register_forward_pre_hook(bring)


def precision_of(device: torch.device) -> torch.dtype:
    """Return bfloat16 on a GPU that has it, float16 on an older one, and else float32."""
    if device.type != "cuda":
        return torch.float32
    return torch.bfloat16 if has_bfloat16(device) else torch.float16
