"""`pliant profile SYSTEM`: measure the champions on the device at hand, and publish what follows as the champions.

For a machine of another class than the one that measured: a service refuses what was measured elsewhere. Knows no system.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from pliant.errors import DeviceError, RegistryError
from pliant.flows import settings
from pliant.flows.champions import A, Champion
from pliant.flows.config import FlowConfig, configured_class
from pliant.flows.progress import shares
from pliant.flows.release import commit, open_registry, publish_champion
from pliant.progress import Progress
from pliant.registry.codec import Artifact
from pliant.registry.mlflow_store import Run
from pliant.registry.package import Package
from pliant.registry.store import FolderStore


@dataclass(frozen=True, slots=True)
class Profiled:
    """What was measured anew. `package`: of the artifact, given its folder; a table of `rows` under a `title`, and
    `sentences`, are shown to people; `log` writes what else the run in MLflow is to hold.
    """

    artifact: Artifact
    package: Callable[[Path], Package]
    title: str
    rows: Sequence[Mapping[str, object]]
    sentences: Sequence[str]
    log: Callable[[Run], None] | None = None


def reprofile(
    system: str,
    champions: Mapping[str, Champion[A]],
    device: str,
    threads: int,
    device_of: Callable[[A], str],
    measure: Callable[[Champion[A], Progress], Profiled],
    progress: Progress,
    other_device: bool,
) -> dict[str, int]:
    """Measure every champion anew, show what came of it, and return the version published of each.

    `device_of`: the class of device of a champion. Raises `RegistryError` where there is none, and
    `DeviceError` for another class of device than a champion was measured on, unless `other_device` is set.
    """
    if not champions:
        raise RegistryError(f"the registry holds no champion of {system}: run `pliant train {system}` first")
    here = configured_class(FlowConfig(device=device, threads=threads))
    for name, champion in champions.items():
        check_replaces(name, here, device_of(champion.artifact), other_device)
    return {
        name: publish(system, name, measure(champion, part))
        for (name, champion), part in shares(progress, champions.items())
    }


def check_replaces(name: str, present: str, champion: str, allowed: bool) -> None:
    """Raise `DeviceError` where a profile of the class `present` would replace the champion of another class.

    `name`: of what is profiled. Called before anything is measured.
    """
    if present != champion and not allowed:
        raise DeviceError(
            f"the champion of {name} was measured on {champion}, and this device is {present}: its profile would replace "
            "that one, and services on the other class would refuse it; name the other device (--device, --threads), or "
            "replace it all the same (--other-device)"
        )


def publish(system: str, name: str, profiled: Profiled) -> int:
    """Publish what was measured as the champion, show it, and return its version."""
    project = settings.read()
    key, store = f"{system}/plan-here-{name}", FolderStore(project.store)
    store.save(key, profiled.artifact)
    package = profiled.package(store.path(key))
    tags = {"git_commit": commit()}
    version = publish_champion(open_registry(project, system), f"{system} profile", package, tags, profiled.log)
    console, table = Console(), Table(*next(iter(profiled.rows), ()), title=profiled.title)
    for row in profiled.rows:
        table.add_row(*(f"{value:.4g}" if isinstance(value, float) else str(value) for value in row.values()))
    console.print(table)
    for sentence in profiled.sentences:
        console.print(sentence)
    console.print(f"Published as version {version} of {package.name}, now champion.")
    return version
