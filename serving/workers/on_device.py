"""What every device process does with its device: make it the present one, set threads, check its class, report a lack
of memory.

Only this file and the systems' own device.py import torch in serving.
"""

from __future__ import annotations

import torch

from pliant import fallbacks
from pliant.device import device_class, prepare_attention, threads
from pliant.errors import DeviceError
from pliant.precision import FLOAT32, is_fast
from pliant.serving.workers.devices import DevicePlan


def prepare(plan: DevicePlan) -> None:
    """Make the device the process's present one, so that nothing is put on another, and set torch's threads and attention.

    Raises `InputError` for a device that this machine lacks, `DeviceError` for one of another class than the plan needs.
    """
    device = torch.device(plan.device)
    if device.type == "cuda":
        if device.index is not None:  # what names no device, such as a plan's memory, is then its own
            device_class(plan.device)  # raises `InputError` without this GPU
            torch.cuda.set_device(device)
        prepare_attention()
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


def usable_precision(precision: str, device: str, name: str) -> str:
    """Return the precision of a plan, or float32 where the device, of another class than was profiled, lacks it."""
    if is_fast(precision, device):
        return precision
    fallbacks.note("precision", f"{name} computes in float32, as {device} has no instructions for {precision}")
    return FLOAT32
