"""Which devices a service uses, and whether what it serves was profiled on their class. Knows settings; starts nothing."""

from __future__ import annotations

from typing import Protocol

from pliant.errors import DeviceError
from serving.settings import Settings


class Profiled(Protocol):
    @property
    def device(self) -> str:
        """The device class. Raises `DeviceError` where there are several."""


def devices(settings: Settings) -> list[str]:
    return [device.strip() for device in settings.device.split(",")]


def check_devices(settings: Settings, catalog: Profiled) -> None:
    """Look at the devices themselves. Raises `DeviceError` for one of another class than the catalog's."""
    if settings.any_profile:
        return
    from serving.workers.on_device import check_device

    for device in devices(settings):
        check_device(catalog.device, device, settings.threads)


class SameDevice:
    """Whether each further catalog was profiled on the first one's class of device."""

    def __init__(self, what: str, any_profile: bool) -> None:
        """`what` a catalog holds, in a sentence."""
        self._what, self._any_profile = what, any_profile
        self._first: str | None = None

    def check(self, catalog: Profiled) -> None:
        """Before any process is started: it would find the same, and later. Raises `DeviceError`."""
        if self._any_profile:
            return
        if self._first not in (None, catalog.device):
            raise DeviceError(
                f"the new {self._what} were profiled on {catalog.device}, but this device is {self._first}: "
                "profile again on it, or serve regardless (--any-profile)"
            )
        self._first = catalog.device
