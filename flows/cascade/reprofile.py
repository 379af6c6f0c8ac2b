"""`pliant profile cascade`: measure the champions on the device at hand, plan again, publish the plans as the champions.

For a machine of another class than the one that trained: the service refuses a profile measured elsewhere. What the levels
say of the held-out texts does not depend on the device, so those saved outputs are planned with again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial

from pliant.cascade.artifact import Cascade, Level, Outputs
from pliant.errors import RegistryError
from pliant.flows import settings
from pliant.flows.arithmetic import FASTER
from pliant.flows.cascade.champions import Record, Saved, fetch_levels, saved_outputs, versions
from pliant.flows.cascade.config import CascadeFlowConfig
from pliant.flows.cascade.publish import rows, task_package
from pliant.flows.cascade.stages import Latencies, in_precision, measure, planned, slowdown
from pliant.flows.champions import Champion, load_champions
from pliant.flows.progress import shares
from pliant.flows.release import open_registry
from pliant.flows.reprofile import Profiled
from pliant.flows.reprofile import reprofile as reprofile_champions
from pliant.precision import FLOAT32, is_fast
from pliant.progress import Progress
from pliant.registry.store import FolderStore

SavedPair = tuple[Saved, Saved]
"""Outputs on the profiling split and on the test split, of one precision."""


def reprofile(device: str, threads: int, progress: Progress, other_device: bool = False) -> dict[str, int]:
    """Print the candidates and return the version published per task. Needs the outputs that the flow saved.

    Raises as `pliant.flows.reprofile.reprofile`.
    """
    project = settings.read()
    registry, store = open_registry(project, "cascade"), FolderStore(project.store)
    champions = load_champions(registry, Cascade)

    @cache
    def outputs() -> dict[str, dict[SavedPair, tuple[Outputs, Outputs]]]:
        """Load those of all champions, before the first is measured: what is lacking is reported at once."""
        return {task: _saved_pairs(store, champion, device) for task, champion in champions.items()}

    def again(champion: Champion[Cascade], part: Progress) -> Profiled:
        old, record = champion.artifact, replace(champion.record(Record), threads=threads)
        config = CascadeFlowConfig(device=device, threads=threads, latency=record.latency, plan=record.plan)
        pair, measured = _fastest(config, fetch_levels(registry, champion), outputs()[old.task], part)
        held, test = outputs()[old.task][pair]
        cascade = replace(planned(config, held, test, measured, old.pair), data=old.data)
        numbers = versions(champion.published.tags)
        package = partial(task_package, cascade, numbers, record=_of_pair(record, pair), tested=len(test.labels))
        sentences = [f"It computes in {cascade.precision}."]
        title = f"{cascade.task} on {cascade.device}"
        return Profiled(cascade, lambda folder: package(folder=folder), title, rows(cascade), sentences)

    return reprofile_champions(
        "cascade", champions, device, threads, lambda each: each.device, again, progress, other_device
    )


def _saved_pairs(
    store: FolderStore, champion: Champion[Cascade], device: str
) -> dict[SavedPair, tuple[Outputs, Outputs]]:
    """Return the champion's outputs on the profiling and the test split, in every precision that the device is fast in.

    Raises `RegistryError` where there are none.
    """
    record = champion.record(Record)
    saved = [(record.outputs, record.test), *zip(record.other[::2], record.other[1::2], strict=True)]
    loaded = {pair: (_saved(store, champion, pair[0]), _saved(store, champion, pair[1])) for pair in saved}
    usable = {pair: outputs for pair, outputs in loaded.items() if is_fast(outputs[0].precision, device)}
    if not usable:
        raise RegistryError(
            f"the task {champion.artifact.task} was only tested in {loaded[saved[0]][0].precision}, for which this device "
            "has no instructions: run `pliant train cascade` here"
        )
    return usable


def _fastest(
    config: CascadeFlowConfig,
    levels: Mapping[str, Level],
    pairs: Mapping[SavedPair, tuple[Outputs, Outputs]],
    progress: Progress,
) -> tuple[SavedPair, Latencies]:
    """Measure the levels in the precision of each pair of outputs; return the pair of the fastest and its latencies.

    Float32 is left only for what is clearly faster.
    """
    measured = {
        pair: measure(in_precision(config, held.precision), levels, part)
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


def _saved(store: FolderStore, champion: Champion[Cascade], saved: Saved) -> Outputs:
    outputs = saved_outputs(store, saved)
    if outputs is None:
        raise RegistryError(
            f"the saved outputs of the task {champion.artifact.task} are not in {store.root} (PLIANT_HOME): a new plan "
            "needs them; run `pliant train cascade` here"
        )
    return outputs
