"""The settings of the bins service, besides those of every service (serving/settings.py)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import model_validator

from pliant.bins.dispatch import DISPATCHES
from pliant.bins.policies import POLICIES
from pliant.errors import InputError
from pliant.registry import names
from pliant.serving.settings import Margin, Settings
from pliant.settings import Count, OneOf


class BinsSettings(Settings):
    """The settings of the bins service. The folder `compiled` in `home` holds the compiled runtimes."""

    SYSTEM: ClassVar[str] = "bins"

    experiment: str = names.experiment("bins")
    policy: Annotated[str, OneOf(POLICIES)] = "default"
    """Scheduling policy."""
    workers: Count = 1
    """Number of devices, each with its own process."""
    least_workers: Count | None = None
    """Fewest devices in use at low load; by default all are in use."""
    pool: Annotated[str, OneOf(("processes", "ray"))] = "processes"
    """Devices are processes of this machine, or actors on Ray's nodes."""
    ray_address: str = ""
    """Address of the Ray cluster: host:port or auto; empty: a local one."""
    dispatch: Annotated[str, OneOf(DISPATCHES)] = "completion"
    """How a device is chosen for a request, if each device holds one runtime."""
    margin: Margin = 0.15
    """Share of the time to a deadline that is reserved for the way back."""
    max_texts: Count = 256
    """Texts in one request."""

    @model_validator(mode="after")
    def _devices_fit(self) -> Self:
        if self.least_workers is not None and self.least_workers > self.workers:
            raise InputError("PLIANT_LEAST_WORKERS", self.least_workers, f"at most the workers, {self.workers}")
        kinds = {name.strip().partition(":")[0] for name in self.device.split(",")}
        if self.pool == "ray" and len(kinds) > 1:
            raise InputError("PLIANT_DEVICE", self.device, "of one kind on Ray's nodes, cpu or cuda")
        return self


SETTINGS = BinsSettings
