"""The list of systems. Everything else about a system is in its folders, `<stage>/<system>/<role>.py`.

A system is added by its folders and one entry here. The command line, the launcher, the settings of services, the
registry, the demo, the benchmarks and the tests go by this list and by the roles' names (`System.part`).
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from pliant.errors import InputError

TEXTS = ("scipy", "tokenizers", "transformers")


@dataclass(frozen=True, slots=True)
class System:
    """`summary`: half a sentence for `--help`. `requires`: distributions that an MLflow client needs for its models."""

    name: str
    summary: str
    requires: tuple[str, ...] = ()

    def part(self, stage: str, role: str) -> ModuleType:
        """Import and return the module `pliant.<stage>.<name>.<role>`, such as `pliant.flows.tokens.flow`."""
        return import_module(f"pliant.{stage}.{self.name}.{role}")

    def has(self, stage: str, role: str) -> bool:
        """Whether there is a module `pliant.<stage>.<name>.<role>`, of a role that not every system needs."""
        return find_spec(f"pliant.{stage}.{self.name}.{role}") is not None


SYSTEMS = (
    System(
        "tokens",
        "vision transformers that add or merge tokens with the load",
        requires=("pillow", "timm", "torchvision"),
    ),
    System("bins", "text encoders in runtimes of fixed shapes, chosen by the text's length", requires=TEXTS),
    System("cascade", "text classifiers, small first, large when unsure", requires=TEXTS),
    System("packing", "generation of texts, packed into memory by predicted output lengths", requires=TEXTS),
)


def names() -> tuple[str, ...]:
    """Return the names of all systems, in the order of the list."""
    return tuple(system.name for system in SYSTEMS)


def system(name: str) -> System:
    """Return the system of this name. Raises `InputError` for an unknown one."""
    for listed in SYSTEMS:
        if listed.name == name:
            return listed
    raise InputError("SYSTEM", name, f"one of {', '.join(names())}")
