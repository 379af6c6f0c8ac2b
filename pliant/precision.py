"""The precisions that models are served and trained in, and whether a device has instructions for them.

Without instructions bfloat16 is slower than float32, and so it is rejected. With them training takes 40% of the time on a
processor (docs/log): products are in bfloat16 where torch considers it safe; weights and sums stay float32.
"""

from __future__ import annotations

import os
import platform
from contextlib import AbstractContextManager
from typing import TypeVar

import torch
from torch import nn

from pliant.errors import InputError

M = TypeVar("M", bound=nn.Module)

FLOAT32 = "float32"
PRECISIONS = (FLOAT32, "bfloat16", "float16")
TRAINING_PRECISIONS = ("auto", FLOAT32, "bfloat16")  # auto: bfloat16 where the device has instructions for it

X86 = ("x86_64", "AMD64")
_ISA_VARIABLES = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
_ISA_WITHOUT = ("SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2", "AVX512_CORE", "AVX512_CORE_VNNI")
"""Limits of oneDNN under which it multiplies bfloat16 without instructions for it, or refuses to."""


def has_bfloat16(device: str | torch.device) -> bool:
    """Return whether this device multiplies bfloat16 with instructions of its own, and therefore faster than float32.

    What counts is what torch may use of a processor: ATEN_CPU_CAPABILITY and ONEDNN_MAX_CPU_ISA limit it. With AVX-512
    but without instructions for bfloat16 oneDNN takes five times as long as in float32. With AVX2 alone torch takes
    fifty times as long, and weights cannot be packed.
    """
    if torch.device(device).type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    supported = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    if supported is None or not torch.backends.mkldnn.is_available() or not supported():
        return False
    if platform.machine() not in X86:
        return True
    if any(os.environ.get(name, "").upper() in _ISA_WITHOUT for name in _ISA_VARIABLES):
        return False
    present = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return bool(present) and torch.backends.cpu.get_cpu_capability() == "AVX512"


def check_precision(precision: str, device: str | torch.device, field: str = "precision") -> None:
    """Raise `InputError`, which suggests float32, for bfloat16 without instructions for it and float16 without a GPU."""
    if precision == "float16" and torch.device(device).type != "cuda":
        raise InputError(field, precision, "float32 here: float16 is for GPUs")
    if precision == "bfloat16" and not has_bfloat16(device):
        what = "GPU" if torch.device(device).type == "cuda" else "processor"
        raise InputError(field, precision, f"float32 here: this {what} has no instructions for bfloat16")


def usable_precision(precision: str, device: str | torch.device) -> str:
    """Return `precision` where the device has it natively, and float32 elsewhere."""
    return precision if is_fast(precision, device) else FLOAT32


def dtype_of(precision: str, device: str | torch.device, field: str = "precision") -> torch.dtype:
    """Return torch's type of a precision. Raises `InputError` for one that is unknown, or slow on this device."""
    if precision not in PRECISIONS:
        raise InputError(field, precision, f"one of {', '.join(PRECISIONS)}")
    check_precision(precision, device, field)
    dtype: torch.dtype = getattr(torch, precision)
    return dtype


def half_precision(device: str | torch.device) -> str | None:
    """Return the half precision that may be faster here: bfloat16, float16 on a GPU without it, None on other CPUs."""
    if has_bfloat16(device):
        return "bfloat16"
    return "float16" if torch.device(device).type == "cuda" else None


def is_fast(precision: str, device: str | torch.device) -> bool:
    """Return whether the device computes in this precision with instructions of its own."""
    try:
        dtype_of(precision, device)
    except InputError:
        return False
    return True


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


def lowered(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """Return a context in which matrix products run in a precision of training (autocast); float32 changes nothing.

    Raises `InputError` for bfloat16 on a device without instructions for it.
    """
    check_precision(precision, device)
    half = has_bfloat16(device) if precision == "auto" else precision == "bfloat16"
    return torch.autocast(device.type, torch.bfloat16, enabled=half)
