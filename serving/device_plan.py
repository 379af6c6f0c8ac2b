"""Where a device process runs its models. A plain value, pickled on its way there: the service needs no torch for it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DevicePlan:
    """Where a model runs and how it is warmed up."""

    device: str
    threads: int | None
    profiled_on: str | None  # the device class to insist on
    warm_batches: tuple[int, ...]
