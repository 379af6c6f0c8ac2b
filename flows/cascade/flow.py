"""The cascade flow: levels -> outputs -> latencies -> plan -> gate -> publish, per task. Prefect's part only.

Labelled answers of a service, where the settings name them, take the place of old texts (flows/cascade/feedback.py).

The work is in stages.py. Results are kept under keys of what they depend on, so a second run with nothing changed
trains and measures nothing. What has gone from the store is made again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from prefect.artifacts import create_table_artifact

from flows import configuration, settings
from flows.arithmetic import half_of, taken, too_costly, too_slow
from flows.cascade import config as cascade_config
from flows.cascade import feedback, stages
from flows.cascade.champions import Champion, load_champions, store_classifiers
from flows.cascade.config import CascadeFlowConfig, LevelConfig
from flows.cascade.gate import EvaluatedCascade, Verdict, judge
from flows.cascade.packages import rerouted
from flows.cascade.precision import cost, in_precision, slowdown
from flows.cascade.publish import publish
from flows.cascade.stages import TaskResults, Texts
from flows.configuration import Configuration
from flows.device import check_device
from flows.gate import below_linear, to_markdown
from flows.keys import StageResult
from flows.progress import stage
from flows.release import Release, merged, open_registry
from flows.repeats import tell
from flows.tasks import (
    cached_stage,
    clean,
    download_stage,
    gate_task,
    publish_task,
    show_release,
    system_flow,
)
from pliant.cascade.artifact import Cascade, Outputs
from pliant.cascade.evaluate import with_test_accuracy
from pliant.errors import PliantError
from registry.mlflow_store import MlflowRegistry
from registry.names import CASCADE_TASK
from registry.store import FolderStore
from training.text_data import TextData

logger = logging.getLogger("pliant.flows")

Levels = dict[str, StageResult]


@download_stage("level", task_run_name="level-{level.name}")
def train_level(
    key: str, level: LevelConfig, config: CascadeFlowConfig, data: TextData, store: FolderStore
) -> StageResult:
    with stage(f"{data.name}: train {level.name}") as progress:
        return stages.make_level(config, level, data, key, store, progress)


@cached_stage("outputs", task_run_name="outputs-{split}")
def run_outputs(
    key: str, split: str, config: CascadeFlowConfig, data: TextData, levels: Levels, store: FolderStore
) -> StageResult:
    with stage(f"{data.name}: outputs, {split}") as progress:
        return stages.make_outputs(config, data, levels, split, key, store, progress)


@cached_stage("lessons", task_run_name="lessons-{split}")
def run_lessons(
    key: str, split: str, config: CascadeFlowConfig, lessons: TextData, levels: Levels, store: FolderStore
) -> StageResult:
    with stage(f"{lessons.name}: outputs of labelled texts, {split}") as progress:
        return stages.make_outputs(config, lessons, levels, split, key, store, progress)


@cached_stage("pool", task_run_name="pool-{split}")
def pool(
    key: str, split: str, config: CascadeFlowConfig, name: str, old: StageResult, new: StageResult, store: FolderStore
) -> StageResult:
    with stage(f"{name}: old and labelled texts, {split}") as progress:
        result = feedback.make_pool(config, split, old, new, key, store)
        progress(1, 1)
    return result


@cached_stage("latencies")
def profile(key: str, config: CascadeFlowConfig, data: TextData, levels: Levels, store: FolderStore) -> StageResult:
    with stage(f"{data.name}: latency profile") as progress:
        return stages.make_latencies(config, levels, key, store, progress)


@cached_stage("linear")
def compare_linear(key: str, data: TextData, test: StageResult, store: FolderStore) -> StageResult:
    with stage(f"{data.name}: linear model") as progress:
        result = stages.make_linear(data, test, key, store)
        progress(1, 1)
    return result


@cached_stage("plan")
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


@gate_task()
def gate(
    config: CascadeFlowConfig, champion: EvaluatedCascade | None, challenger: EvaluatedCascade, below_linear: str
) -> Verdict:
    with stage(f"{challenger.cascade.task}: gate") as progress:
        verdict = judge(champion, challenger, config.gate, config.reference, config.other_device, below_linear)
        progress(1, 1)
    return verdict


@publish_task()
def release(
    config: CascadeFlowConfig,
    results: list[TaskResults],
    verdicts: dict[str, Verdict],
    store: FolderStore,
    kept: dict[str, str],
) -> Release:
    with stage("publish") as progress:
        released = publish(settings.read(), config, results, verdicts, store, progress, kept)
    _show(results, verdicts, released, store)
    return released


@system_flow("cascade", "cascade")
def cascade(
    config: str | None = None,
    overrides: dict[str, Any] | None = None,
    reason: str | None = None,
    new_task: bool = False,
    nightly: bool = False,
) -> dict[str, Any]:
    """Train, calibrate, profile, plan, judge and publish the cascade system.

    `config`: path of a TOML file; `overrides`: values laid over its top level (see flows/cascade/config.py);
    `reason`: the alarm that started it (see flows/watch); `new_task`: whether it may release a task that the live release
    lacks; `nightly`: without a file, the configuration is that of the live release (flows/configuration.py).
    Returns what was released: model name -> version, and whether everything was promoted.
    """
    del reason  # flows/watch/triggered.py acts on it
    given = configuration.to_train(settings.read(), "cascade", config, overrides, nightly)
    released = merged([_train(each, new_task) for each in given])
    clean("cascade")
    return released.to_dict()


def _train(given: Configuration, new_task: bool) -> Release:
    """Train, judge and publish what one configuration says."""
    flow_config = cascade_config.read(given.source, given.laid_over)
    check_device(flow_config)  # before anything is trained
    half_of(flow_config.arithmetic, flow_config.device)
    store = FolderStore(settings.read().store)
    with stage("texts") as progress:
        loaded = stages.load_data(flow_config)
        progress(1, 1)
    kept = configuration.to_keep(
        settings.read(), "cascade", given, [CASCADE_TASK + data.name for data in loaded], new_task
    )
    tasks = zip(flow_config.tasks, loaded, strict=True)
    results = [run_task(flow_config, flow_config.levels_of(task), data, store) for task, data in tasks]
    registry = open_registry(settings.read(), "cascade")
    champions = load_champions(registry)
    _show_labels(flow_config, champions)
    verdicts = {
        result.task: gate(
            flow_config,
            _champion(flow_config, champions, result, registry, store),
            _challenger(result, store),
            _below_linear(flow_config, task.data, result, store),
        )
        for task, result in zip(flow_config.tasks, results, strict=True)
    }
    released: Release = release(flow_config, results, verdicts, store, kept)
    return released


def run_task(
    config: CascadeFlowConfig, levels: Sequence[LevelConfig], data: TextData, store: FolderStore
) -> TaskResults:
    """Run every stage of one task, each from the cache where what it depends on has not changed."""
    lessons = feedback.taught(config, data)
    tell(f"labelled texts of {data.name}", lessons.repeats if lessons else None)
    fitted, trained = feedback.training_data(data, lessons), Levels()
    for level in levels:
        key = stages.train_key(level, fitted)
        trained[level.name] = train_level(key, level, config, fitted, store)
    chosen, arithmetic = _in_best_precision(config, data, trained, store)
    float32 = () if chosen is config else _both_outputs(config, data, lessons, trained, store)
    config = chosen
    outputs, test = _both_outputs(config, data, lessons, trained, store)
    own = _outputs(config, data, trained, "test", store)
    linear = compare_linear(stages.linear_key(fitted, own), fitted, own, store)
    latencies = _latencies(config, data, trained, store)
    key = stages.plan_key(config, data, outputs, test, latencies)
    planned = plan(key, config, data, outputs, test, latencies, store)
    texts = Texts(data, lessons)
    return TaskResults(data.name, trained, outputs, test, latencies, planned, float32, arithmetic, texts, linear)


def _in_best_precision(
    config: CascadeFlowConfig, data: TextData, levels: Levels, store: FolderStore
) -> tuple[CascadeFlowConfig, str]:
    """Return the config in the precision that is served, and a sentence on why: empty where there was no choice.

    What costs less is measured first: no outputs are computed in a precision that is not faster.
    """
    half = half_of(config.arithmetic, config.device)
    if half is None:
        return config, ""
    both = in_precision(config, half), config
    latencies = (_latencies(each, data, levels, store) for each in both)
    ratio = slowdown(*(store.load(stages.Latencies, result["key"], result["digest"]) for result in latencies))
    if reason := too_slow(config.arithmetic, half, ratio):
        return config, reason
    outputs = (_outputs(each, data, levels, "profiling", store) for each in both)
    lost = cost(*(store.load(Outputs, result["key"], result["digest"]) for result in outputs))
    if reason := too_costly(config.arithmetic, half, lost):
        return config, reason
    return both[0], taken(half, ratio, lost)


def _latencies(config: CascadeFlowConfig, data: TextData, levels: Levels, store: FolderStore) -> StageResult:
    key = stages.latencies_key(config, data, levels)
    return profile(key, config, data, levels, store)


def _both_outputs(
    config: CascadeFlowConfig, data: TextData, lessons: TextData | None, levels: Levels, store: FolderStore
) -> tuple[StageResult, StageResult]:
    """Return the outputs on the profiling split and on the test split, with those on labelled texts where there are any."""
    profiling, test = (_pooled(config, data, lessons, levels, split, store) for split in ("profiling", "test"))
    return profiling, test


def _pooled(
    config: CascadeFlowConfig,
    data: TextData,
    lessons: TextData | None,
    levels: Levels,
    split: str,
    store: FolderStore,
) -> StageResult:
    old = _outputs(config, data, levels, split, store)
    if lessons is None:
        return old
    key = stages.outputs_key(config, lessons, levels, split)
    new = run_lessons(key, split, config, lessons, levels, store)
    key = feedback.pool_key(config, data.name, split, old, new)
    return pool(key, split, config, data.name, old, new, store)


def _outputs(config: CascadeFlowConfig, data: TextData, levels: Levels, split: str, store: FolderStore) -> StageResult:
    key = stages.outputs_key(config, data, levels, split)
    return run_outputs(key, split, config, data, levels, store)


def _champion(
    config: CascadeFlowConfig,
    champions: Mapping[str, Champion],
    result: TaskResults,
    registry: MlflowRegistry,
    store: FolderStore,
) -> EvaluatedCascade | None:
    """Return a task's champion, with its outputs on its test split where the store still has them.

    Where labels teach, the test's texts change from night to night: then with its outputs on those of the challenger.
    """
    champion = champions.get(result.task)
    if champion is None:
        return None
    saved = champion.test(store)
    if config.feedback.outcomes is None or result.texts is None:
        return EvaluatedCascade(champion.cascade, saved)
    test = store.load(Outputs, result.test["key"], result.test["digest"])
    if saved is not None and saved.data == test.data:
        return EvaluatedCascade(champion.cascade, saved)
    try:
        if not _same_levels(champion.cascade, test):
            config = in_precision(config, champion.cascade.precision)
            levels, texts = store_classifiers(registry, champion, store), result.texts
            again = _pooled(config, texts.data, texts.lessons, levels, "test", store)
            test = store.load(Outputs, again["key"], again["digest"])
        return EvaluatedCascade(with_test_accuracy(champion.cascade, test), test)
    except PliantError as error:  # of other classes, or of prunings that are not run any more
        logger.warning("the champion of %s cannot be run on today's test texts: %s", result.task, error)
        return EvaluatedCascade(champion.cascade, saved)


def _same_levels(cascade: Cascade, test: Outputs) -> bool:
    digests = tuple(level.classifier for level in cascade.levels)
    return (digests, cascade.precision) == (test.classifiers, test.precision)


def _show_labels(config: CascadeFlowConfig, champions: Mapping[str, Champion]) -> None:
    """Show in Prefect's UI what labels say of what is served, also where no texts were kept to plan anew with."""
    figures = feedback.read_figures(config.feedback, list(champions))
    promised = {
        (task, candidate.name): candidate.promised
        for task, champion in champions.items()
        for candidate in champion.cascade.candidates
    }
    if figures:
        rows = feedback.to_rows(figures, promised)
        create_table_artifact(rows, key="cascade-labels", description="Labels that may teach, by what they are of")


def _challenger(result: TaskResults, store: FolderStore) -> EvaluatedCascade:
    planned = store.load(Cascade, result.plan["key"], result.plan["digest"])
    return EvaluatedCascade(planned, store.load(Outputs, result.test["key"], result.test["digest"]))


def _below_linear(config: CascadeFlowConfig, address: str, result: TaskResults, store: FolderStore) -> str:
    compared = stages.load_linear(store, result)
    name = f"the largest level of {result.task}"
    return below_linear([(name, address, compared)] if compared else [], config.gate.below_linear)


def _show(
    results: Sequence[TaskResults], verdicts: Mapping[str, Verdict], released: Release, store: FolderStore
) -> None:
    """Show the results in Prefect's UI."""
    rows = []
    for result in results:
        planned = store.load(Cascade, result.plan["key"], result.plan["digest"])
        for candidate in planned.candidates:
            rows.append(
                {
                    "task": result.task,
                    "candidate": candidate.name,
                    "test accuracy": round(planned.test_accuracy[candidate.name], 3),
                    "promised": round(candidate.promised, 3),
                    "ms alone": round(1000 * candidate.seconds, 2),
                    "re-routed": f"{100 * rerouted(candidate):.0f}%",
                }
            )
    create_table_artifact(rows, key="cascade-candidates", description="Test accuracy and cost per candidate")
    arithmetic = "\n".join(f"- {result.task}: {result.arithmetic}" for result in results if result.arithmetic)
    chosen = f"\n\nPrecision:\n\n{arithmetic}" if arithmetic else ""
    show_release("cascade", f"The gate:\n\n{to_markdown(verdicts)}{chosen}", released)
