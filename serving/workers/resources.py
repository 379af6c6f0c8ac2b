"""What a device takes of a node of a Ray cluster. A plain value: needs no Ray."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Resources:
    """What one device takes of its node, as Ray counts it. Ray lets a device see the GPUs alone that it is given."""

    num_cpus: float = 1.0
    num_gpus: float = 0.0
    custom: Mapping[str, float] = field(default_factory=dict)  # such as a node's own name for a kind of accelerator

    def __str__(self) -> str:
        named = {"CPU": self.num_cpus, "GPU": self.num_gpus, **self.custom}
        return " and ".join(f"{amount:g} {name}" for name, amount in named.items() if amount) or "nothing"
