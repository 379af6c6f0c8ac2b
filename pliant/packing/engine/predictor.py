"""The predictor of output lengths on its device, in the precision in which it is fastest there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pliant.packing.artifact import Predictor
from pliant.packing.engine.model import Forecast, LengthModel, LinearModel, PredictorModel
from pliant.precision import has_bfloat16

ALIKE = 8
"""Prompts of similar length in one forward pass on a CPU, where padding costs as much as tokens do.

Of 32 mixed prompts in one pass each took 0.36 ms of processor time, sorted and eight at a time 0.18 ms (one layer of width
96; 0.93 and 0.37 ms at two layers of width 128). Eight have nearly all that a larger batch gives.
"""


@dataclass(frozen=True, slots=True)
class PlacedPredictor:
    """A length predictor on its device. `alike`: prompts in one forward pass; 0: as many as there are."""

    model: PredictorModel
    alike: int

    def predict(self, texts: Sequence[str]) -> list[Forecast]:
        """Return a forecast for each prompt, in order."""
        size = self.alike or max(len(texts), 1)
        order = sorted(range(len(texts)), key=lambda at: len(texts[at]))
        forecasts: dict[int, Forecast] = {}
        for start in range(0, len(order), size):
            places = order[start : start + size]
            forecasts.update(zip(places, self.model.predict([texts[at] for at in places]), strict=True))
        return [forecasts[at] for at in range(len(texts))]


def load(predictor: Predictor, device: str) -> PlacedPredictor:
    """Return the predictor, ready to run on the device. Raises `ArtifactError` if its weights do not fit it."""
    model = PredictorModel.of(predictor)
    place(model.model, torch.device(device))
    return PlacedPredictor(model, ALIKE if torch.device(device).type == "cpu" else 0)


def place(model: LengthModel | LinearModel, device: torch.device) -> None:
    """Move a length model to its device, with the encoder in the device's precision.

    The heads and a linear model, which are small, stay in float32: the heads' inputs are promoted to it. Inputs of a call
    come from the CPU.
    """
    if isinstance(model, LengthModel):
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
