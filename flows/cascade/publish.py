"""From the store to the registry: what a run of the cascade flow made, with its parameters, metrics, figures and reports.

A task is one registered model, each of its levels another: the task's version names the levels' versions. Tasks are judged
and promoted one by one. What is new and what is live: flows/release.py. Knows no Prefect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial

from flows import gate, release
from flows.cascade.config import CascadeFlowConfig
from flows.cascade.gate import Verdict
from flows.cascade.live import Record, Saved
from flows.cascade.packages import level_package, task_package
from flows.cascade.report import log_task
from flows.cascade.stages import TaskMade
from flows.keys import StageResult
from flows.release import Release, commit, flat, promote, register
from flows.settings import Settings
from pliant.cascade.artifact import Cascade
from pliant.models.artifact import Classifier
from pliant.progress import Progress
from registry.mlflow_run import Run
from registry.mlflow_store import MlflowRegistry
from registry.names import CASCADE_TASK, cascade_level, experiment
from registry.store import FolderStore


def publish(
    settings: Settings,
    config: CascadeFlowConfig,
    made: Sequence[TaskMade],
    verdicts: Mapping[str, Verdict],
    store: FolderStore,
    progress: Progress,
) -> Release:
    """Log the run, register what is new, and move the aliases of every task that the gate let pass."""
    registry = release.open_registry(settings, experiment("cascade"))
    versions: dict[str, int] = {}
    new: list[str] = []
    with registry.run("cascade", {"git_commit": commit()}) as run:
        run.params(flat(asdict(config)))
        run.document("gate", {task: asdict(verdict) for task, verdict in verdicts.items()})
        for done, one in enumerate(made):
            log_task(run, one, store)
            known, fresh = _register(registry, run, config, one, store)
            if verdicts[one.task].passed:
                promote(registry, known)
            versions |= known
            new += fresh
            progress(done + 1, len(made))
    passed = all(verdict.passed for verdict in verdicts.values())
    return Release(passed, gate.reason(verdicts), versions, tuple(new), run.id)


def _register(
    registry: MlflowRegistry, run: Run, config: CascadeFlowConfig, made: TaskMade, store: FolderStore
) -> tuple[dict[str, int], list[str]]:
    """Versions of the task's levels and of the task itself, in this order, and which of them are new."""
    versions: dict[str, int] = {}
    new: list[str] = []
    cascade = store.load(Cascade, made.plan["key"], made.plan["digest"])
    levels: dict[str, int] = {}
    for level in cascade.levels:
        one, name = made.levels[level.name], cascade_level(made.task, level.name)
        classifier = store.load(Classifier, one["key"], one["digest"])
        package = partial(level_package, classifier, level, cascade.pair, store.path(one["key"]), one)
        levels[level.name], is_new = register(registry, run, name, one["digest"], package)
        versions[name] = levels[level.name]
        new += [name] if is_new else []
    name = CASCADE_TASK + made.task
    record = Record(config.plan, config.latency, config.threads, _saved(made.outputs), _saved(made.test))
    package = partial(task_package, cascade, levels, store.path(made.plan["key"]), record)
    versions[name], is_new = register(registry, run, name, made.plan["digest"], package)
    return versions, [*new, name] if is_new else new


def _saved(made: StageResult) -> Saved:
    return Saved(made["key"], made["digest"])
