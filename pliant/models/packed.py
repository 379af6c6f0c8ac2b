"""Linear layers of a frozen model in the form in which this processor multiplies fastest. Knows modules only.

On x86 torch sends `linear` to MKL, which stays with 256-bit instructions on processors that are not Intel's; oneDNN takes
512-bit ones wherever they are, adds the bias and applies GELU while a result is still in the cache. Weights are laid out in
its blocks once (torch's compiler does the same when it freezes a model). For inference alone: no gradients.
"""

from __future__ import annotations

import platform

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, linear

from pliant.precision import X86

_FEW = 800_000
"""Below this many multiplications a call of oneDNN costs more (about 10 microseconds) than it saves."""


class PackedLinear(nn.Module):
    """`activation(x @ weight.T + bias)` without gradients; `activation` is "none" or "gelu" (the exact one)."""

    def __init__(self, layer: nn.Linear, activation: str = "none") -> None:
        super().__init__()
        # Plain attributes: a weight in oneDNN's layout can be neither moved nor saved like a parameter.
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
    """Whether this build of torch and this processor have what `pack` needs."""
    return (
        platform.machine() in X86
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    )
