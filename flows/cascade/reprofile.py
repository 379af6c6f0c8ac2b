"""`pliant profile cascade`: measure the champions on the device at hand, plan again, publish the plans as the champions.

For a machine of another class than the one that trained: the service refuses a profile measured elsewhere. What the levels
say of the held-out texts does not depend on the device, so those saved outputs are planned with again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rich.console import Console
from rich.table import Table

from flows import settings
from flows.arithmetic import FASTER
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
from flows.cascade.precision import in_precision, slowdown
from flows.cascade.stages import Latencies, measure, planned
from flows.device import check_replaces, configured_class
from flows.progress import shares
from flows.release import open_registry, publish_champion
from pliant.cascade.artifact import Cascade, Outputs
from pliant.errors import RegistryError
from pliant.models.artifact import Classifier
from pliant.precision import FLOAT32, is_fast
from pliant.progress import Progress
from registry.mlflow_store import MlflowRegistry
from registry.store import FolderStore

SavedPair = tuple[Saved, Saved]
"""Outputs on the profiling split and on the test split, of one precision."""


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
    outputs = {task: _saved_pairs(store, champion, device) for task, champion in champions.items()}
    published = {}
    for (task, champion), part in shares(progress, champions.items()):
        record = replace(champion.record, threads=threads)
        config = CascadeFlowConfig(device=device, threads=threads, latency=record.latency, plan=record.plan)
        pair, measured = _fastest(config, fetch_classifiers(registry, champion), outputs[task], part)
        cascade = planned(config, *outputs[task][pair], measured, champion.cascade.pair)
        cascade = replace(cascade, data=champion.cascade.data)
        record = _of_pair(record, pair)
        published[task] = _publish(registry, store, champion, cascade, record)
        _show(cascade, published[task])
    return published


def _saved_pairs(store: FolderStore, champion: Champion, device: str) -> dict[SavedPair, tuple[Outputs, Outputs]]:
    """Return the champion's outputs on the profiling and the test split, in every precision that the device is fast in.

    Raises `RegistryError` where there are none.
    """
    record = champion.record
    saved = [(record.outputs, record.test), *zip(record.other[::2], record.other[1::2], strict=True)]
    loaded = {pair: (_saved(store, champion, pair[0]), _saved(store, champion, pair[1])) for pair in saved}
    usable = {pair: outputs for pair, outputs in loaded.items() if is_fast(outputs[0].precision, device)}
    if not usable:
        raise RegistryError(
            f"the task {champion.cascade.task} was only tested in {loaded[saved[0]][0].precision}, for which this device "
            "has no instructions: run `pliant train cascade` here"
        )
    return usable


def _fastest(
    config: CascadeFlowConfig,
    classifiers: Sequence[Classifier],
    pairs: Mapping[SavedPair, tuple[Outputs, Outputs]],
    progress: Progress,
) -> tuple[SavedPair, Latencies]:
    """Measure the levels in the precision of each pair of outputs; return the pair of the fastest and its latencies.

    Float32 is left only for what is clearly faster.
    """
    measured = {
        pair: measure(in_precision(config, held.precision), classifiers, part)
        for (pair, (held, _)), part in shares(progress, pairs.items())
    }
    *halves, full = sorted(measured, key=lambda pair: measured[pair].precision == FLOAT32)
    best = next((half for half in halves if slowdown(measured[half], measured[full]) < FASTER), full)
    return best, measured[best]


def _of_pair(record: Record, pair: SavedPair) -> Record:
    """Return the record of a plan that was searched with these outputs."""
    if pair == (record.outputs, record.test):
        return record
    return replace(record, outputs=pair[0], test=pair[1], other=(record.outputs, record.test))


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
    console.print(f"It computes in {cascade.precision}.")
    console.print(f"Published as version {version} of the task {cascade.task}, now champion.")
