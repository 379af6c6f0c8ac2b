"""What every device process does with its device: set threads, check the device class, report a lack of memory.

Only this file and the systems' own device.py import torch in serving.
"""

from __future__ import annotations

import torch

from pliant.device import device_class, threads
from pliant.errors import DeviceError
from serving.workers.device_plan import DevicePlan


def prepare(plan: DevicePlan) -> None:
    """Set torch's threads. Raises `DeviceError` if the device is of another class than the plan needs."""
    if plan.threads is not None:
        torch.set_num_threads(plan.threads)
    if plan.profiled_on is not None:
        check_device(plan.profiled_on, plan.device, plan.threads)


def check_device(profiled: str, device: str, thread_count: int | None) -> None:
    """Raise `DeviceError` if the device, with this many threads, is of another class than `profiled`."""
    with threads(thread_count):
        present = device_class(device)
    if present != profiled:
        raise DeviceError(
            f"the profile was measured on {profiled}, but this device is {present}: profile again on it, give as many "
            "threads as were profiled (--threads), or serve regardless (--any-profile)"
        )
