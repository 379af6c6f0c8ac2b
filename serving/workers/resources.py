"""The resources that a device needs on a node of a Ray cluster; importing this needs no Ray."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources of one device, as Ray counts them. A device sees only the GPUs that Ray gives it."""

    num_cpus: float = 1.0
    num_gpus: float = 0.0
    custom: Mapping[str, float] = field(default_factory=dict)  # other resources by name, such as a kind of accelerator

    def __str__(self) -> str:
        named = {"CPU": self.num_cpus, "GPU": self.num_gpus, **self.custom}
        return " and ".join(f"{amount:g} {name}" for name, amount in named.items() if amount) or "nothing"
