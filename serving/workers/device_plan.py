"""Build plans: what a device process needs to make its model. They are pickled values, so the service needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, ClassVar, TypeVar

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""The variable by which a process sees fewer GPUs than there are, read when CUDA starts: numbers or UUIDs, by commas."""
B = TypeVar("B")


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
