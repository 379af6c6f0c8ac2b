"""What every device process does about its device, whatever model it holds: threads, device class, memory.

With the systems' own device.py all of serving that brings torch along. Knows no model.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from pliant.device import device_class, threads
from pliant.errors import DeviceError, WorkerError
from serving.workers.device_plan import DevicePlan


def prepare(plan: DevicePlan) -> None:
    """Raises `DeviceError` on another class of device than the profile's."""
    if plan.threads is not None:
        torch.set_num_threads(plan.threads)
    if plan.profiled_on is not None:
        check_device(plan.profiled_on, plan.device, plan.threads)


def check_device(profiled: str, device: str, thread_count: int | None) -> None:
    """Raises `DeviceError` where a profile was measured on another class of device than it is to be used on."""
    with threads(thread_count):
        found = device_class(device)
    if found != profiled:
        raise DeviceError(
            f"the profile was measured on {profiled}, but this device is {found}: profile again on it, give as many "
            "threads as were profiled (--threads), or serve regardless (--any-profile)"
        )


@contextmanager
def room(device: str) -> Iterator[None]:
    """A model that does not fit, beside another one for instance, is told as such."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        told = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise WorkerError(f"{device} has no room for the model ({told})") from error
