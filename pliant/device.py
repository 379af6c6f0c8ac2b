"""The device that a profile was measured on, and torch's threads. Knows no system and no model."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from pliant.errors import InputError


def device_class(device: str) -> str:
    """Return the name under which a profile is valid: the GPU's model, or the CPU's architecture and thread count.

    Raises `InputError` for a device that this machine lacks.
    """
    try:
        if torch.device(device).type == "cuda":
            return torch.cuda.get_device_name(torch.device(device))
    except (RuntimeError, AssertionError) as error:  # the latter where torch was built without CUDA
        reason = str(error).splitlines()[0]
        raise InputError("device", device, f"one that torch finds on this machine ({reason})") from error
    return f"cpu-{platform.machine()}-{torch.get_num_threads()}t"


def prepare_attention() -> None:
    """Leave cuDNN's attention out of what torch chooses from in this process, as a service's shapes are many.

    On Hopper and later GPUs torch prefers it. It makes a plan at the first call of every shape, batch and length
    included, and keeps it in memory for good: some 8 gammas x 7 buckets x the layers of a model, whose lengths differ
    as tokens are merged, or every bin. That is seconds to minutes at each start of a device process, and again within
    a launch for a batch that runs without a graph. Flash attention and the memory-efficient kernel need no plans.
    """
    torch.backends.cuda.enable_cudnn_sdp(False)


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Run with `count` torch threads (None: as many as now), and then as before. Raises `InputError` below 1."""
    if count is not None and count < 1:
        raise InputError("threads", count, "at least 1")
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
