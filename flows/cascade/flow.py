"""The cascade flow: levels -> outputs -> latencies -> plan -> gate -> publish, per task. Prefect's part only.

The work is in stages.py. Stages are cached under keys of what they depend on, so a second run with nothing changed
trains and measures nothing. A cached result whose artifact has gone from the store is made again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prefect import flow, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE

from flows import settings
from flows.cascade import config as cascade_config
from flows.cascade import live, stages
from flows.cascade.config import CascadeFlowConfig, LevelConfig
from flows.cascade.gate import Contender, Verdict, judge
from flows.cascade.packages import rerouted
from flows.cascade.publish import publish
from flows.cascade.stages import TaskMade
from flows.device import check_device
from flows.gate import told as gate_told
from flows.keys import StageResult
from flows.progress import stage
from flows.release import Release
from flows.tasks import fetched, fresh, kept, passing, show_release
from pliant.cascade.artifact import Cascade, Outputs
from registry.store import FolderStore
from training.text_data import TextData

Levels = dict[str, StageResult]


@fetched("level", task_run_name="level-{level.name}")
def train_level(
    key: str, level: LevelConfig, config: CascadeFlowConfig, data: TextData, store: FolderStore
) -> StageResult:
    with stage(f"{data.name}: train {level.name}") as progress:
        return stages.make_level(config, level, data, key, store, progress)


@kept("outputs", task_run_name="outputs-{split}")
def run_outputs(
    key: str, split: str, config: CascadeFlowConfig, data: TextData, levels: Levels, store: FolderStore
) -> StageResult:
    with stage(f"{data.name}: outputs, {split}") as progress:
        return stages.make_outputs(config, data, levels, split, key, store, progress)


@kept("latencies")
def profile(key: str, config: CascadeFlowConfig, data: TextData, levels: Levels, store: FolderStore) -> StageResult:
    with stage(f"{data.name}: latency profile") as progress:
        return stages.make_latencies(config, levels, key, store, progress)


@kept("plan")
def plan(
    key: str,
    config: CascadeFlowConfig,
    data: TextData,
    outputs: StageResult,
    test: StageResult,
    latencies: StageResult,
    store: FolderStore,
) -> StageResult:
    with stage(f"{data.name}: plan") as progress:
        return stages.make_plan(config, data, outputs, test, latencies, key, store, progress)


@task(name="gate", cache_policy=NO_CACHE)
def gate(config: CascadeFlowConfig, champion: Contender | None, challenger: Contender) -> Verdict:
    with stage(f"{challenger.cascade.task}: gate") as progress:
        verdict = judge(champion, challenger, config.gate, config.reference)
        progress(1, 1)
    return verdict


@task(name="publish", cache_policy=NO_CACHE, retries=2, retry_delay_seconds=3, retry_condition_fn=passing)
def release(
    config: CascadeFlowConfig, made: list[TaskMade], verdicts: dict[str, Verdict], store: FolderStore
) -> Release:
    with stage("publish") as progress:
        released = publish(settings.read(), config, made, verdicts, store, progress)
    _show(made, verdicts, released, store)
    return released


@flow(name="cascade", validate_parameters=True)
def cascade(config: str | None = None, overrides: dict[str, Any] | None = None) -> dict[str, Any]:
    """Train, calibrate, profile, plan, judge and publish the cascade system.

    `config`: path of a TOML file; `overrides`: values laid over its top level (see flows/cascade/config.py).
    Returns what was released: model name -> version, and whether everything was promoted.
    """
    told = cascade_config.read(Path(config) if config else None, overrides)
    check_device(told)  # what the device cannot do is told before anything is trained
    store = FolderStore(settings.read().store)
    with stage("texts") as progress:
        loaded = stages.load_data(told)
        progress(1, 1)
    made = [one_task(told, told.of(one), data, store) for one, data in zip(told.tasks, loaded, strict=True)]
    champions = live.live(live.open_registry(settings.read()))
    verdicts = {one.task: gate(told, _champion(champions, one.task, store), _challenger(one, store)) for one in made}
    return release(told, made, verdicts, store).plain()


def one_task(told: CascadeFlowConfig, levels: Sequence[LevelConfig], data: TextData, store: FolderStore) -> TaskMade:
    """Every stage of one task, each from the cache where what it depends on has not changed."""
    trained: Levels = {}
    for level in levels:
        key = stages.train_key(level, data)
        trained[level.name] = fresh(train_level, store, key)(key, level, told, data, store)
    outputs, test = (_outputs(told, data, trained, split, store) for split in ("profiling", "test"))
    key = stages.latencies_key(told, data, trained)
    latencies: StageResult = fresh(profile, store, key)(key, told, data, trained, store)
    key = stages.plan_key(told, data, outputs, test, latencies)
    planned: StageResult = fresh(plan, store, key)(key, told, data, outputs, test, latencies, store)
    return TaskMade(data.name, trained, outputs, test, latencies, planned)


def _outputs(told: CascadeFlowConfig, data: TextData, levels: Levels, split: str, store: FolderStore) -> StageResult:
    key = stages.outputs_key(told, data, levels, split)
    made: StageResult = fresh(run_outputs, store, key)(key, split, told, data, levels, store)
    return made


def _champion(champions: Mapping[str, live.Live], name: str, store: FolderStore) -> Contender | None:
    """With its outputs on its test split where the store still has them."""
    if name not in champions:
        return None
    one = champions[name]
    return Contender(one.cascade, one.test(store))


def _challenger(made: TaskMade, store: FolderStore) -> Contender:
    planned = store.load(Cascade, made.plan["key"], made.plan["digest"])
    return Contender(planned, store.load(Outputs, made.test["key"], made.test["digest"]))


def _show(made: Sequence[TaskMade], verdicts: Mapping[str, Verdict], released: Release, store: FolderStore) -> None:
    """Results in Prefect's UI."""
    rows = []
    for one in made:
        planned = store.load(Cascade, one.plan["key"], one.plan["digest"])
        for candidate in planned.candidates:
            rows.append(
                {
                    "task": one.task,
                    "candidate": candidate.name,
                    "test accuracy": round(planned.test_accuracy[candidate.name], 3),
                    "promised": round(candidate.promised, 3),
                    "ms alone": round(1000 * candidate.seconds, 2),
                    "re-routed": f"{100 * rerouted(candidate):.0f}%",
                }
            )
    create_table_artifact(rows, key="cascade-candidates", description="Test accuracy and cost per candidate")
    show_release("cascade", f"The gate:\n\n{gate_told(verdicts)}", released)
