"""`pliant profile cascade`: measure the champions on the device at hand, plan again, publish the plans as the champions.

For a machine of another class than the one that trained: the service refuses a profile measured elsewhere. What the levels
say of the held-out texts does not depend on the device, so those saved outputs are planned with again.
"""

from __future__ import annotations

from dataclasses import replace

from rich.console import Console
from rich.table import Table

from flows import settings
from flows.cascade.config import CascadeFlowConfig
from flows.cascade.live import Live, Record, Saved, classifiers, live, open_registry, saved_outputs, versions
from flows.cascade.packages import rerouted, task_package
from flows.cascade.stages import measure, planned
from pliant.cascade.artifact import Cascade, Outputs
from pliant.errors import RegistryError
from pliant.progress import Progress, share
from registry.mlflow_store import MlflowRegistry
from registry.store import FolderStore


def reprofile(device: str, threads: int, progress: Progress) -> dict[str, int]:
    """Print the candidates and give the version published per task. Needs the outputs that the flow saved."""
    told = settings.read()
    registry, store = open_registry(told), FolderStore(told.store)
    champions = live(registry)
    if not champions:
        raise RegistryError("the registry holds no champion of the cascade: run `pliant train cascade` first")
    # All before the first is measured: what is lacking is told at once.
    saved = {task: _both_saved(store, one) for task, one in champions.items()}
    published = {}
    for number, (task, one) in enumerate(champions.items()):
        part = share(progress, 100 * number // len(champions), 100 * (number + 1) // len(champions))
        record = replace(one.record, threads=threads)
        config = CascadeFlowConfig(device=device, threads=threads, latency=record.latency, plan=record.plan)
        measured = measure(config, classifiers(registry, one), part)
        made = planned(config, *saved[task], measured, one.cascade.pair)
        published[task] = _publish(registry, store, one, made, record)
        _show(made, published[task])
    return published


def _both_saved(store: FolderStore, one: Live) -> tuple[Outputs, Outputs]:
    """On the profiling split and on the test split."""
    return _saved(store, one, one.record.outputs), _saved(store, one, one.record.test)


def _saved(store: FolderStore, one: Live, saved: Saved) -> Outputs:
    found = saved_outputs(store, saved)
    if found is None:
        raise RegistryError(
            f"the saved outputs of the task {one.cascade.task} are not in {store.root} (PLIANT_HOME): a new plan needs "
            "them; run `pliant train cascade` here"
        )
    return found


def _publish(registry: MlflowRegistry, store: FolderStore, one: Live, made: Cascade, record: Record) -> int:
    key = f"cascade/plan-here-{made.task}"
    store.save(key, made)
    package = task_package(made, versions(one.published.tags), store.path(key), record)
    with registry.run("cascade profile") as run:
        version = registry.publish(run, package).version
    registry.promote(package.name, version)
    return version


def _show(cascade: Cascade, version: int) -> None:
    columns = ("candidate", "promised", "test accuracy", "ms alone", "re-routed")
    table = Table(*columns, title=f"{cascade.task} on {cascade.device}")
    for one in cascade.candidates:
        shares = (one.promised, cascade.test_accuracy[one.name])
        table.add_row(one.name, *(f"{s:.3f}" for s in shares), f"{1000 * one.seconds:.2f}", f"{rerouted(one):.0%}")
    console = Console()
    console.print(table)
    console.print(f"Published as version {version} of the task {cascade.task}, now champion.")
