"""The arithmetic of training: float32, or bfloat16 where torch considers it safe. Weights and sums stay float32.

With instructions for bfloat16, training takes 40% of the time on a processor (docs/log); without them bfloat16 is slower.
So "auto" uses it only where the device has them, and asking for it elsewhere is an error.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch

from pliant.precision import check_precision, has_bfloat16

PRECISIONS = ("auto", "float32", "bfloat16")


def lowered(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """Return a context in which matrix products run in `precision` (autocast); float32 changes nothing.

    Raises `InputError` for bfloat16 on a device without instructions for it.
    """
    check_precision(precision, device)
    half = has_bfloat16(device) if precision == "auto" else precision == "bfloat16"
    return torch.autocast(device.type, torch.bfloat16, enabled=half)
