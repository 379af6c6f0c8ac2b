"""The names of experiments and registered models, for flows, services and benchmarks alike."""

from __future__ import annotations

from pliant import systems


def experiment(system: str) -> str:
    """Return the name of the MLflow experiment of a system's runs."""
    return f"pliant-{system}"


def prefix(system: str) -> str:
    """Return the prefix of the names of all registered models of a system."""
    return f"pliant-{system}-"


TOKENS_PREFIX = prefix("tokens")
BINS_PREFIX = prefix("bins")
CASCADE_PREFIX = prefix("cascade")
PACKING_PREFIX = prefix("packing")
TOKENS_BACKBONE = TOKENS_PREFIX + "backbone"
TOKENS_PROFILE = TOKENS_PREFIX + "profile"
TOKENS_TASK = TOKENS_PREFIX + "task-"
BINS_ENCODER = BINS_PREFIX + "encoder-"  # the plan of a stream has the prefix and the stream's name alone
CASCADE_TASK = CASCADE_PREFIX + "task-"
CASCADE_MODEL = CASCADE_PREFIX + "model-"
PACKING_GENERATOR = PACKING_PREFIX + "generator-"  # a plan has the prefix and the generator's name alone
PACKING_PREDICTOR = PACKING_PREFIX + "predictor-"

LEVEL_TAG = "pliant.model."
"""With a level's name: tag of a cascade task's version, the number of the version of that level's model."""


def cascade_level(task: str, level: str) -> str:
    """Return the name of the registered model of one level of a cascade."""
    return f"{CASCADE_MODEL}{task}-{level}"


def release(system: str) -> str:
    """Return the name of the registered model whose versions are a system's releases (registry/releases.py)."""
    return f"pliant-release-{system}"


def lock(system: str) -> str:
    """Return what the names of the models begin with that lock a system's releases (registry/lock.py)."""
    return f"pliant-lock-{system}-"


def task_of(name: str) -> str | None:
    """Return the task that a registered model is: a task, a stream of bins or a model of packing; None for anything else."""
    for system in systems.listed():
        own = prefix(system.name)
        if name.startswith(own + system.task) and not name.startswith(tuple(own + part for part in system.parts)):
            return name.removeprefix(own + system.task)
    return None


def system_of(name: str) -> str | None:
    """Return the system that a registered model, or a prefix of such names, belongs to; None for a foreign one."""
    head, _, rest = name.partition("-")
    system, dash, _ = rest.partition("-")
    return system if head == "pliant" and dash and system in systems.names() else None
