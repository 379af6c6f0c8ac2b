"""Build plans: what a device process needs to make its model. They are pickled values, so the service needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class DevicePlan:
    """Where a model runs and how it is warmed up."""

    device: str
    threads: int | None  # of torch; None: torch's own choice
    profiled_on: str | None  # the class that the device must have; None: any
    warm_batches: tuple[int, ...]  # batch sizes that run once before the first request


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
