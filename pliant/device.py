"""The device that a profile was measured on, and torch's threads. Knows no system and no model."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from pliant.errors import InputError


def device_class(device: str) -> str:
    """The name under which a profile is valid: the GPU's model, or the CPU's architecture with the thread count.

    Raises `InputError` for a device that is not there.
    """
    try:
        if torch.device(device).type == "cuda":
            return torch.cuda.get_device_name(torch.device(device))
    except (RuntimeError, AssertionError) as error:  # the latter where torch was built without CUDA
        told = str(error).splitlines()[0]
        raise InputError("device", device, f"one that torch finds on this machine ({told})") from error
    return f"cpu-{platform.machine()}-{torch.get_num_threads()}t"


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Run with this many torch threads (None: as many as there are), then with as many as before."""
    if count is not None and count < 1:
        raise InputError("threads", count, "at least 1")
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
