"""The settings of the bins service, besides those of every service (serving/settings.py)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

from pliant.bins.dispatch import DISPATCHES
from pliant.bins.policies import POLICIES
from pliant.errors import InputError
from pliant.registry import names
from pliant.serving.settings import Settings, check_margin

POOLS = ("processes", "ray")


@dataclass(frozen=True, slots=True, kw_only=True)
class BinsSettings(Settings):
    """The settings of the bins service. The folder `compiled` in `home` holds the compiled runtimes."""

    SYSTEM: ClassVar[str] = "bins"
    CHOICES: ClassVar[Mapping[str, Collection[str]]] = {"policy": POLICIES, "dispatch": DISPATCHES, "pool": POOLS}
    POSITIVE: ClassVar[tuple[str, ...]] = (*Settings.POSITIVE, "workers", "least_workers", "max_texts")

    experiment: str = names.experiment("bins")
    policy: str = "default"  # one of pliant/bins/policies.py
    workers: int = 1  # Number of devices.
    least_workers: int | None = None  # Fewest devices in use at low load; by default all are in use.
    pool: str = "processes"  # Devices are processes of this machine, or actors on Ray's nodes.
    ray_address: str = ""  # Address of the Ray cluster: host:port or auto; empty: a local one.
    dispatch: str = "completion"  # one of pliant/bins/dispatch.py, if each device holds one runtime
    margin: float = 0.15  # Share of the time to a deadline that is reserved for the way back.
    max_texts: int = 256  # Texts in one request.

    def __post_init__(self) -> None:
        Settings.__post_init__(self)
        check_margin(self.margin)
        if self.least_workers is not None and self.least_workers > self.workers:
            raise InputError("PLIANT_LEAST_WORKERS", self.least_workers, f"at most the workers, {self.workers}")
        kinds = {name.strip().partition(":")[0] for name in self.device.split(",")}
        if self.pool == "ray" and len(kinds) > 1:
            raise InputError("PLIANT_DEVICE", self.device, "of one kind on Ray's nodes, cpu or cuda")


SETTINGS = BinsSettings
