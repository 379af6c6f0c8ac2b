"""The devices of a service, and whether its artifacts were profiled on their class."""

from __future__ import annotations

from typing import Protocol

from pliant.errors import DeviceError
from serving.settings import Settings


class Profiled(Protocol):
    @property
    def device(self) -> str:
        """The class of device. Raises `DeviceError` if there are several."""


def devices(settings: Settings) -> list[str]:
    """Return the devices that the settings name."""
    return [device.strip() for device in settings.device.split(",")]


def device_of(settings: Settings, worker: int) -> str:
    """Return the device of one worker, of those that the settings name in turn."""
    names = devices(settings)
    return names[worker % len(names)]


def check_devices(settings: Settings, catalog: Profiled) -> None:
    """Raise `DeviceError` for a device of another class than the catalog was profiled on."""
    if settings.any_profile:
        return
    from serving.workers.on_device import check_device

    for device in devices(settings):
        check_device(catalog.device, device, settings.threads)


class SameDevice:
    """Checks that every later catalog was profiled on the same class of device as the first."""

    def __init__(self, what: str, any_profile: bool) -> None:
        """`what` a catalog holds, as errors name it."""
        self._what, self._any_profile = what, any_profile
        self._first: str | None = None

    def check(self, catalog: Profiled) -> None:
        """Raise `DeviceError` for another class than the first catalog's. Called before any process is started."""
        if self._any_profile:
            return
        if self._first not in (None, catalog.device):
            raise DeviceError(
                f"the new {self._what} were profiled on {catalog.device}, but this device is {self._first}: "
                "profile again on it, or serve regardless (--any-profile)"
            )
        self._first = catalog.device
