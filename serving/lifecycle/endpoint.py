"""The base of every system's endpoint: readiness, the poll on demand, and the part of the status that all systems have."""

from __future__ import annotations

from typing import Any, Generic

from typing_extensions import TypeVar  # with defaults, which the standard library has from 3.13 on

from pliant.fallbacks import Fallback
from serving.clock import Clock
from serving.driver import Driver
from serving.lifecycle.catalog import Catalog
from serving.lifecycle.generation import Running
from serving.lifecycle.refresh import Refresher
from serving.metrics import Metrics
from serving.settings import Settings
from serving.workers.devices import device_of, devices

S = TypeVar("S", bound=Settings)
C = TypeVar("C", bound=Catalog)
H = TypeVar("H")
D = TypeVar("D", bound=Running, default=Driver)
M = TypeVar("M", default=Metrics)


class Endpoint(Generic[S, C, H, D, M]):
    """A service apart from HTTP. `S` are its settings, `M` its metrics; `C`, `H` and `D` are those of `Generation`."""

    def __init__(self, settings: S, refresher: Refresher[C, H, D], metrics: M, clock: Clock) -> None:
        self.settings, self.metrics, self._clock = settings, metrics, clock
        self._poller, self._generations = refresher.poller, refresher.generations
        self._refresher = refresher

    @property
    def now(self) -> float:
        """Return the present time in seconds, on the clock that deadlines are on."""
        return self._clock()

    @property
    def ready(self) -> bool:
        """Whether the service can answer requests."""
        return self._generations.present.driver.ready

    @property
    def alive(self) -> bool:
        """Whether the service can recover by itself; if not, its process must be restarted."""
        return self._generations.present.driver.alive

    @property
    def usual_deadline(self) -> float:
        """Return the seconds in which requests usually must be answered."""
        return self._generations.present.driver.usual_deadline

    async def refresh(self) -> dict[str, Any]:
        """Poll the registry now, and return the outcome. Raises as `Refresher`'s poll."""
        return (await self._poller.poll()).to_dict()

    def common_status(self) -> dict[str, Any]:
        """Return the part of the status that all systems have."""
        present = self._generations.present
        return {
            "ready": self.ready,
            "alias": self.settings.alias,
            "release": self._refresher.release,
            "generation": present.number,
            "device": ",".join(devices(self.settings)),
            "leaving": self._generations.draining,
            "standby": standby.number if (standby := self._generations.standby) is not None else None,
            "refresh": self._poller.last.to_dict(),
            "refresh_seconds": self._poller.seconds,
            "waiting": present.driver.waiting,
            "pending": present.driver.pending,
        }


def described_devices(settings: Settings, driver: Driver) -> list[dict[str, Any]]:
    """Return what a status says of the device of each worker."""
    return [
        {"name": device_of(settings, worker), "up": up, "fallbacks": [_described(fallback) for fallback in fallbacks]}
        for worker, (up, fallbacks) in enumerate(zip(driver.up, driver.fallbacks, strict=True))
    ]


def _described(fallback: Fallback) -> dict[str, str]:
    return {"kind": fallback.kind, "reason": fallback.reason}
