"""The devices of a service, and whether its artifacts were profiled on their class."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from typing import Protocol

from pliant import memory
from pliant.errors import DeviceError, WorkerError
from pliant.serving.settings import Settings

AUTO = "auto"
ASK = "import sys; sys.path[:] = {path!r}; from pliant import device; print(device.{call})"


class Profiled(Protocol):
    @property
    def device(self) -> str:
        """The class of device. Raises `DeviceError` if there are several."""


def devices(settings: Settings) -> list[str]:
    """Return the devices that the settings name; for "auto" the one that it stands for on this machine."""
    names = [device.strip() for device in settings.device.split(",")]
    return [auto_device() if name == AUTO else name for name in names]


@cache
def auto_device() -> str:
    """Return the device that "auto" stands for here. Raises `WorkerError` where torch cannot be queried.

    A process of its own queries torch, unless this one has loaded it: a service does without.
    """
    if (loaded := sys.modules.get("pliant.device")) is not None:
        return str(loaded.resolve_device(AUTO))
    return _ask(f"resolve_device({AUTO!r})", "which devices this machine has; name one with --device")


def free_memory(device: str) -> int:
    """Return the bytes that a device has free. Raises `WorkerError` where torch cannot be queried.

    Another process queries a GPU: this one would occupy some of it from then on.
    """
    if device == "cpu":
        return memory.free_memory()
    return int(_ask(f"free_bytes({device!r})", f"how much memory {device} has free"))


def _ask(call: str, what: str) -> str:
    """Return what a function of pliant/device.py answers in a process of its own."""
    ask = [sys.executable, "-c", ASK.format(path=sys.path, call=call)]
    answer = subprocess.run(ask, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if answer.returncode:
        reason = answer.stderr.strip().splitlines()[-1:] or ["no message"]
        raise WorkerError(f"torch cannot say {what} ({reason[0]})")
    return answer.stdout.strip()


def device_of(settings: Settings, worker: int) -> str:
    """Return the device of one worker, of those that the settings name in turn."""
    names = devices(settings)
    return names[worker % len(names)]


def check_devices(settings: Settings, catalog: Profiled) -> None:
    """Raise `DeviceError` for a device of another class than the catalog was profiled on."""
    if settings.any_profile:
        return
    from pliant.serving.workers.on_device import check_device

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
