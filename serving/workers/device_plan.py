"""What a device process is told of what it runs. Plain values, pickled on their way there: the service needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class DevicePlan:
    """Where a model runs and how it is warmed up."""

    device: str
    threads: int | None
    profiled_on: str | None  # the device class to insist on
    warm_batches: tuple[int, ...]


class BuildPlan:
    """What a device process makes its model of. Calling it makes the model; only that process does.

    `BUILDER` names the function, "module:function", which is given the plan and the call's arguments: so the plan does not
    import what needs torch.
    """

    __slots__ = ()
    BUILDER: ClassVar[str]

    def __call__(self, *arguments: Any) -> Any:
        module, _, function = self.BUILDER.partition(":")
        return getattr(import_module(module), function)(self, *arguments)
