"""`pliant profile cascade`: measure the champions on the device at hand, plan again, publish the plans as the champions.

For a machine of another class than the one that trained: the service refuses a profile measured elsewhere. What the levels
say of the held-out texts does not depend on the device, so those saved outputs are planned with again.
"""

from __future__ import annotations

from dataclasses import replace

from rich.console import Console
from rich.table import Table

from flows import settings
from flows.cascade.champions import (
    Champion,
    Record,
    Saved,
    fetch_classifiers,
    load_champions,
    saved_outputs,
    versions,
)
from flows.cascade.config import CascadeFlowConfig
from flows.cascade.packages import rerouted, task_package
from flows.cascade.stages import measure, planned
from flows.device import check_replaces, configured_class
from flows.progress import shares
from flows.release import open_registry, publish_champion
from pliant.cascade.artifact import Cascade, Outputs
from pliant.errors import RegistryError
from pliant.progress import Progress
from registry.mlflow_store import MlflowRegistry
from registry.store import FolderStore


def reprofile(device: str, threads: int, progress: Progress, other_device: bool = False) -> dict[str, int]:
    """Print the candidates and return the version published per task. Needs the outputs that the flow saved.

    Raises `DeviceError` for another class of device than a champion was measured on, unless `other_device` is set.
    """
    project = settings.read()
    registry, store = open_registry(project, "cascade"), FolderStore(project.store)
    champions = load_champions(registry)
    if not champions:
        raise RegistryError("the registry holds no champion of the cascade: run `pliant train cascade` first")
    here = configured_class(CascadeFlowConfig(device=device, threads=threads))
    for task, champion in champions.items():
        check_replaces(task, here, champion.cascade.device, other_device)
    # All are loaded before the first is measured: what is lacking is reported at once.
    outputs = {task: _both_saved(store, champion) for task, champion in champions.items()}
    published = {}
    for (task, champion), part in shares(progress, champions.items()):
        record = replace(champion.record, threads=threads)
        config = CascadeFlowConfig(device=device, threads=threads, latency=record.latency, plan=record.plan)
        measured = measure(config, fetch_classifiers(registry, champion), part)
        cascade = planned(config, *outputs[task], measured, champion.cascade.pair)
        published[task] = _publish(registry, store, champion, cascade, record)
        _show(cascade, published[task])
    return published


def _both_saved(store: FolderStore, champion: Champion) -> tuple[Outputs, Outputs]:
    """Return the champion's outputs on the profiling split and on the test split. Raises `RegistryError`."""
    return _saved(store, champion, champion.record.outputs), _saved(store, champion, champion.record.test)


def _saved(store: FolderStore, champion: Champion, saved: Saved) -> Outputs:
    outputs = saved_outputs(store, saved)
    if outputs is None:
        raise RegistryError(
            f"the saved outputs of the task {champion.cascade.task} are not in {store.root} (PLIANT_HOME): a new plan needs "
            "them; run `pliant train cascade` here"
        )
    return outputs


def _publish(registry: MlflowRegistry, store: FolderStore, champion: Champion, cascade: Cascade, record: Record) -> int:
    key = f"cascade/plan-here-{cascade.task}"
    store.save(key, cascade)
    package = task_package(cascade, versions(champion.published.tags), store.path(key), record)
    return publish_champion(registry, "cascade profile", package)


def _show(cascade: Cascade, version: int) -> None:
    columns = ("candidate", "promised", "test accuracy", "ms alone", "re-routed")
    table = Table(*columns, title=f"{cascade.task} on {cascade.device}")
    for candidate in cascade.candidates:
        accuracies = (f"{share:.3f}" for share in (candidate.promised, cascade.test_accuracy[candidate.name]))
        table.add_row(candidate.name, *accuracies, f"{1000 * candidate.seconds:.2f}", f"{rerouted(candidate):.0%}")
    console = Console()
    console.print(table)
    console.print(f"Published as version {version} of the task {cascade.task}, now champion.")
