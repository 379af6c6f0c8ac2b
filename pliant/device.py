"""Devices by name: which one "auto" is, the class that a profile is valid for, its free memory, and torch's
threads. Knows no system."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from pliant.errors import InputError, WorkerError
from pliant.memory import free_memory

AUTO = "auto"
"""The name of a device that stands for the GPU where there is one, and else for the CPU."""

_LACK = ("can't allocate memory", "could not create a primitive", "out of memory")
# What torch's allocator of a CPU, oneDNN and CUDA say, which raise a plain RuntimeError.


def resolve_device(device: str) -> str:
    """Return the device that a name stands for: of "auto" it is cuda where torch finds a GPU, else cpu.

    Any other name stays as it is.
    """
    if device != AUTO:
        return device
    return "cuda" if torch.cuda.is_available() else "cpu"


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


def describe_device(device: str) -> str:
    """Return a device's name for people, a GPU with its model. Raises `InputError` for one that this machine lacks."""
    name = device_class(device)
    return device if name.startswith("cpu-") else f"{device} ({name})"


def free_bytes(device: str) -> int:
    """Return the bytes that this process may still take of the device's memory: of a CPU's, of the machine's.

    What torch keeps for later allocations counts as free.
    """
    if torch.device(device).type != "cuda":
        return free_memory()
    free, _ = torch.cuda.mem_get_info(device)
    return int(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that the device, or the machine, has too little memory."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _LACK)


@contextmanager
def reporting_memory(device: str) -> Iterator[None]:
    """Raise `WorkerError` if the block runs out of the device's memory."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise WorkerError(f"{device} has no room for the model ({reason})") from error


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
