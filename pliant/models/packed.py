"""Linear layers of a frozen model in the layout that this processor multiplies fastest. Knows modules only.

On x86 torch sends `linear` to MKL, which keeps to 256-bit instructions on processors other than Intel's. oneDNN uses
512-bit ones wherever they exist, and adds the bias and applies GELU while a result is still in the cache. Weights are
put into its blocked layout once, as torch's compiler does when it freezes a model. For inference alone: there are no
gradients.
"""

from __future__ import annotations

import platform

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, linear

from pliant.precision import X86

_FEW = 800_000
"""Multiplications below which a call of oneDNN costs more time (about 10 microseconds) than it saves."""


class PackedLinear(nn.Module):
    """Computes `activation(x @ weight.T + bias)` without gradients. `activation`: "none" or "gelu" (the exact one)."""

    def __init__(self, layer: nn.Linear, activation: str = "none") -> None:
        super().__init__()
        # Plain attributes, since a weight in oneDNN's layout can be neither moved nor saved like a parameter.
        weight = layer.weight.detach()
        self._few = _FEW // weight.numel()
        self._plain = weight if self._few else None
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight)
        self._bias = None if layer.bias is None else layer.bias.detach()
        self._activation = activation
        self._call = torch.ops.mkldnn._linear_pointwise.default

    def forward(self, x: Tensor) -> Tensor:
        if self._plain is not None and x.numel() <= self._few * x.shape[-1]:
            plain = linear(x, self._plain, self._bias)
            return gelu(plain) if self._activation == "gelu" else plain
        out: Tensor = self._call(x, self._weight, self._bias, self._activation, [], "none")
        return out


def can_pack() -> bool:
    """Return whether this build of torch and this processor have what `PackedLinear` needs."""
    return (
        platform.machine() in X86
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    )
