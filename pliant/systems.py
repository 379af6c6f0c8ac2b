"""The list of systems. Everything else about a system is in modules that are found by their roles.

A system of ours has `pliant.<stage>.<system>.<role>` and an entry here. One of another distribution names its value of
`System` as an entry point of the group `pliant.systems`, which says where its roles are. The command line, the
launcher, the settings of services, the registry, the demo, the benchmarks and the tests go by this list and by the roles'
names (`System.part`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from types import ModuleType

from pliant.errors import InputError

TEXTS = ("scipy", "tokenizers", "transformers")
GROUP = "pliant.systems"
PYFUNC = "pliant.registry.pyfunc"


@dataclass(frozen=True, slots=True)
class System:
    """`summary`: half a sentence for `--help`. `requires`: distributions that an MLflow client needs for its models.

    `task`: what the names of registered models that stand for tasks begin with, after the system's own prefix; `parts`: what
    those of models begin with that belong to a task. `roles`: role -> module, of a system that is not Pliant's own.
    """

    name: str
    summary: str
    requires: tuple[str, ...] = ()
    task: str = "task-"
    parts: tuple[str, ...] = ()
    roles: Mapping[str, str] = field(default_factory=dict)

    def part(self, stage: str, role: str) -> ModuleType:
        """Import and return the module of a role, such as `pliant.flows.tokens.flow`.

        Raises `InputError` where the system has no such role.
        """
        if not self.has(stage, role):
            raise InputError("SYSTEM", self.name, f"one that has the role {role} of {stage}")
        return import_module(self.module(stage, role))

    def has(self, stage: str, role: str) -> bool:
        """Whether the system has the module of a role, as not every system needs each."""
        module = self.module(stage, role)
        return bool(module) and find_spec(module.rpartition(".")[0]) is not None and find_spec(module) is not None

    def module(self, stage: str, role: str) -> str:
        """Return the name of the module of a role; empty where another distribution's system has none."""
        return self.roles.get(role, "") if self.roles else f"pliant.{stage}.{self.name}.{role}"


SYSTEMS = (
    System(
        "tokens",
        "vision transformers that add or merge tokens with the load",
        requires=("pillow", "timm", "torchvision"),
    ),
    System(
        "bins",
        "text encoders in runtimes of fixed shapes, chosen by the text's length",
        requires=TEXTS,
        task="",
        parts=("encoder-",),
    ),
    System("cascade", "text classifiers, small first, large when unsure", requires=TEXTS),
    System(
        "packing",
        "generation of texts, packed into memory by predicted output lengths",
        requires=TEXTS,
        task="",
        parts=("generator-", "predictor-"),
    ),
)
"""Pliant's own."""


@cache
def listed() -> tuple[System, ...]:
    """Return all systems: Pliant's own, then those of other distributions that are installed."""
    return (*SYSTEMS, *(entry.load() for entry in sorted(entry_points(group=GROUP), key=lambda each: each.name)))


def names() -> tuple[str, ...]:
    """Return the names of all systems, in the order of the list."""
    return tuple(system.name for system in listed())


def pyfunc(kind: str) -> str:
    """Return the module that says how artifacts of a kind, such as "tokens-task", answer in an MLflow client."""
    name = kind.partition("-")[0]
    return next((each.roles["pyfunc"] for each in listed() if each.name == name and each.roles), f"{PYFUNC}.{name}")


def system(name: str) -> System:
    """Return the system of this name. Raises `InputError` for an unknown one."""
    for each in listed():
        if each.name == name:
            return each
    raise InputError("SYSTEM", name, f"one of {', '.join(names())}")
