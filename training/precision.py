"""The arithmetic of training: whole float32, or bfloat16 where torch deems it safe. Weights and sums stay float32.

On a processor with instructions for bfloat16 training takes 40% of the time (LOG.md); without them bfloat16 is slower, so
"auto" takes it only where the device has them, and asking for it elsewhere is refused.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch

from pliant.precision import check_precision, has_bfloat16

PRECISIONS = ("auto", "float32", "bfloat16")


def lowered(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """A context whose matrix products run in `precision` (autocast); with float32 it changes nothing.

    Raises `InputError` for bfloat16 on a device without instructions for it.
    """
    check_precision(precision, device)
    return torch.autocast(device.type, torch.bfloat16, enabled=_low(precision, device))


def _low(precision: str, device: torch.device) -> bool:
    return has_bfloat16(device) if precision == "auto" else precision == "bfloat16"
