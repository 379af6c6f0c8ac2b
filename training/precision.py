"""The arithmetic of training: whole float32, or bfloat16 where torch deems it safe. Weights and sums stay float32.

On a processor with instructions for bfloat16 training takes 40% of the time (LOG.md); without them bfloat16 is slower, so
"auto" takes it only where the device has it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch

PRECISIONS = ("auto", "float32", "bfloat16")


def lowered(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """A context whose matrix products run in `precision` (autocast); with float32 it changes nothing."""
    return torch.autocast(device.type, torch.bfloat16, enabled=_low(precision, device))


def _low(precision: str, device: torch.device) -> bool:
    if precision != "auto":
        return precision == "bfloat16"
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
