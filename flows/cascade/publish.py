"""From the store to the registry: the results of a cascade flow run, with its parameters, metrics, figures and reports.

A task is one registered model, each of its levels another: the task's version names the levels' versions. Tasks are judged
one by one, and released together. What is new and what is live: flows/release.py. Knows no Prefect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial

from flows import gate
from flows.cascade.champions import Record, Saved
from flows.cascade.config import CascadeFlowConfig
from flows.cascade.gate import Verdict
from flows.cascade.packages import level_package, task_package
from flows.cascade.report import log_task
from flows.cascade.stages import TaskResults
from flows.keys import StageResult
from flows.release import Publication, Release, open_registry, publication
from flows.settings import Settings
from pliant.cascade.artifact import Cascade
from pliant.models.artifact import Classifier
from pliant.progress import Progress
from registry.names import CASCADE_TASK, cascade_level
from registry.store import FolderStore


def publish(
    settings: Settings,
    config: CascadeFlowConfig,
    tasks: Sequence[TaskResults],
    verdicts: Mapping[str, Verdict],
    store: FolderStore,
    progress: Progress,
    kept: Mapping[str, str],
) -> Release:
    """Log the run, register what is new, and release every task that the gate let pass, all together."""
    report = {task: asdict(verdict) for task, verdict in verdicts.items()}
    with publication(open_registry(settings, "cascade"), "cascade", asdict(config), report, kept) as published:
        passed: list[str] = []
        for done, task in enumerate(tasks):
            log_task(published.run, task, store)
            names = _register(published, config, task, store)
            passed += names if verdicts[task.task].passed else ()
            progress(done + 1, len(tasks))
        published.promote(passed)
    return published.release(all(verdict.passed for verdict in verdicts.values()), gate.reason(verdicts))


def _register(published: Publication, config: CascadeFlowConfig, task: TaskResults, store: FolderStore) -> list[str]:
    """Register the task's levels and the task itself, and return the names of their models in this order."""
    cascade = store.load(Cascade, task.plan["key"], task.plan["digest"])
    versions: dict[str, int] = {}
    for level in cascade.levels:
        result, name = task.levels[level.name], cascade_level(task.task, level.name)
        classifier = store.load(Classifier, result["key"], result["digest"])
        package = partial(level_package, classifier, level, cascade.pair, store.path(result["key"]), result)
        versions[level.name] = published.register(name, result["digest"], package)
    float32 = tuple(_saved(result) for result in task.float32)
    record = Record(config.plan, config.latency, config.threads, _saved(task.outputs), _saved(task.test), float32)
    package = partial(task_package, cascade, versions, store.path(task.plan["key"]), record)
    published.register(CASCADE_TASK + task.task, task.plan["digest"], package)
    return [*(cascade_level(task.task, level) for level in versions), CASCADE_TASK + task.task]


def _saved(result: StageResult) -> Saved:
    return Saved(result["key"], result["digest"])
