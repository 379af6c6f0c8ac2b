"""The devices of a service, whether its artifacts were profiled on their class, and build plans: what a device process needs
to make its model. These are pickled values, so the service needs no torch.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from pliant import memory
from pliant.errors import DeviceError, WorkerError

if TYPE_CHECKING:  # build plans are unpickled on machines without pydantic, too
    from pliant.serving.settings import Settings

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""The variable by which a process sees fewer GPUs than there are, read when CUDA starts: numbers or UUIDs, by commas."""

B = TypeVar("B")
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


@dataclass(frozen=True, slots=True)
class DevicePlan:
    """Where a model runs and how it is warmed up."""

    device: str  # as the process sees it
    threads: int | None  # of torch; None: torch's own choice
    profiled_on: str | None  # the class that the device must have; None: any
    warm_batches: tuple[int, ...]  # batch sizes that run once before the first request
    named: str = ""  # as the settings name it, where the process has another name for it

    @property
    def name(self) -> str:
        """Return the device's name for people: the one that the settings use."""
        return self.named or self.device


class BuildPlan:
    """Calling a build plan makes the model; only the device process does so.

    `BUILDER` ("module:function") names the function that is called with the plan and the arguments, so that importing the
    plan does not import torch.
    """

    __slots__ = ()
    BUILDER: ClassVar[str]

    def __call__(self, *arguments: Any) -> Any:
        module, _, function = self.BUILDER.partition(":")
        return getattr(import_module(module), function)(self, *arguments)


def alone(build: B, environment: Mapping[str, str]) -> tuple[B, dict[str, str]]:
    """Return a build for a process that sees its own device and no other, and the variables that make it so.

    A process on the CPU sees no GPU, and to one on `cuda:1` that is `cuda:0`. Without variables the build stays as it is:
    where it has no plan, where several processes share the model, and where `environment` hides that GPU, which the
    process then says itself. `environment` is the one that the process would inherit.
    """
    plan = getattr(build, "plan", None)
    if not isinstance(plan, DevicePlan) or getattr(build, "processes", 1) > 1:
        return build, {}
    kind, _, number = plan.device.partition(":")
    if kind == "cpu":
        return build, {VISIBLE: ""}
    seen = environment.get(VISIBLE, "").split(",") if VISIBLE in environment else None
    index = int(number) if number.isdecimal() else 0
    if kind != "cuda" or (seen is not None and not seen[index : index + 1]) or seen == [""]:
        return build, {}
    own = replace(plan, device="cuda:0" if number else "cuda", named=plan.device)
    return replace(build, plan=own), {VISIBLE: seen[index].strip() if seen else str(index)}  # type: ignore[type-var]
