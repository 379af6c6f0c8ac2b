"""A system's flow under Prefect: its stages, then the gate, publication and cleaning. Knows no system.

What is common to all flows is here; what is particular to one is a subclass of `Pipeline` (flows/SYSTEM/flow.py). A second
run with nothing changed trains and measures nothing, since the results of stages are kept (flows/stage.py). Every flow and
every task has a time limit (flows/watch/deployments.py).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar, Generic, ParamSpec, Protocol, TypeVar, cast

from prefect import Flow, State, Task, flow, get_client, task
from prefect.artifacts import create_link_artifact, create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.states import Completed
from prefect.utilities.urls import url_for

from pliant import systems
from pliant.errors import RefusedError, RegistryError, UnreachableError
from pliant.flows import chart, configuration, gate, retention, settings
from pliant.flows.beside import Beside
from pliant.flows.config import check_device
from pliant.flows.configuration import Configuration
from pliant.flows.gate import Judged
from pliant.flows.progress import log
from pliant.flows.progress import stage as bar
from pliant.flows.record import DOCUMENT, Recorder, inputs_of
from pliant.flows.release import (
    OUTAGE_WAITS,
    Publication,
    Release,
    commit,
    current_run,
    flatten,
    merged,
    open_registry,
    publication,
    retried,
)
from pliant.flows.stage import A, Stage, StageResult
from pliant.flows.stage import Run as RunStage
from pliant.flows.watch.notify import emit_release
from pliant.flows.watch.triggered import triggered
from pliant.progress import Progress
from pliant.registry.mlflow_store import MlflowRegistry, Run
from pliant.registry.store import FolderStore
from pliant.settings import FlowSettings
from pliant.training.linear import LinearComparison


class Named(Protocol):
    """`name`: of a task, stream or model; empty where a flow makes a single thing."""

    @property
    def name(self) -> str: ...


P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C")
"""A system's settings of the flow."""
U = TypeVar("U", bound=Named)
"""What is trained and judged by itself, with its data."""
R = TypeVar("R", bound=Named)
"""All stages' results of one of these."""
S = TypeVar("S")
"""What the gate compares."""
Verdicts = Mapping[str, Judged[Any]]
Compared = tuple[str, str, LinearComparison]
"""A model's name, the address of its data, and how it does beside a linear model."""
Judge = Callable[..., Judged[Any]]
"""Takes champion and challenger, the settings of the gate and of the reference load, a callback of progress, and `beside`
where the pipeline gives one.
"""
Opened = Callable[[], Run]
"""Returns the flow's run in MLflow, which is opened where it is not yet."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A table for people. With measures `ys` it is also a chart of these columns over the column `x`.

    `label`: the column that says what a row is.
    """

    rows: list[dict[str, Any]]
    key: str
    description: str
    x: str = ""
    ys: Sequence[str] = ()
    label: str = ""


@dataclass(frozen=True)
class Pipeline(ABC, Generic[C, U, R, S]):
    """A run of a system's flow with one configuration. `run` gives the results of stages.

    `system`: its name, and that of the flow; `model`: prefix of the registered models that stand for its tasks; `learns`:
    whether from labels that clients of a service report; `loading`: what is read first; `run_name`: of the run in MLflow, if
    it is another than the system's; `naming`: keys of a configuration that say which tasks are trained; `judge`: the gate,
    and `device_of`: the class of device that one of its sides was measured on. A challenger of another class than the
    champion's, or worse than a linear model, is rejected whatever `judge` says.
    """

    config: C
    run: RunStage
    recorder: Recorder = field(default_factory=Recorder, kw_only=True)

    system: ClassVar[str]
    learns: ClassVar[bool] = False
    model: ClassVar[str]
    loading: ClassVar[str] = "texts"
    run_name: ClassVar[str] = ""
    naming: ClassVar[tuple[str, ...]]
    judge: ClassVar[Judge]
    device_of: ClassVar[Callable[..., str]]

    @abstractmethod
    def load(self, progress: Progress) -> Sequence[U]:
        """Return all that is to be trained, with its data. Raises `InputError`."""

    @abstractmethod
    def make(self, unit: U) -> R:
        """Run every stage of one unit, each from the cache where what it depends on has not changed."""

    @abstractmethod
    def sides(self, results: Sequence[R]) -> Iterable[tuple[S | None, S]]:
        """Yield the champion, if there is one, and the challenger of each result."""

    @abstractmethod
    def register(self, published: Publication, result: R) -> list[str]:
        """Log and register one result, and return the names of its models, those that name others last."""

    @property
    def registry(self) -> MlflowRegistry:
        return open_registry(settings.read(), self.system)

    def beside(self, result: R, champion: S, challenger: S, progress: Progress) -> Beside | None:
        """Return what is measured of both sides beside each other, now; None where the gate takes nothing of that."""
        del result, champion, challenger, progress
        return None

    def tables(self, results: Sequence[R]) -> list[Shown]:
        """Return what Prefect's and MLflow's pages show of the results."""
        del results
        return []

    def summary(self, results: Sequence[R], verdicts: Verdicts) -> str:
        """Return in Markdown what the gate said, and of what."""
        del results
        return gate.to_markdown(verdicts)

    def models(self, units: Sequence[U]) -> list[str]:
        """Return the registered models that stand for the tasks of these units."""
        return [self.model + unit.name for unit in units]

    def compared(self, unit: U, result: R) -> list[Compared]:
        """Return how the result's models do beside linear ones, where that is known."""
        del unit, result
        return []

    def report(self, verdicts: Verdicts) -> Mapping[str, Any]:
        """Return the gate's report as plain values."""
        return {name: asdict(verdict) for name, verdict in verdicts.items()}

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of the run in MLflow."""
        return asdict(self.config)  # type: ignore[call-overload, no-any-return]  # all settings are dataclasses

    def unchanged(self, results: Sequence[R], kept: Mapping[str, str]) -> Release | None:
        """Return the release where nothing is to be judged; `kept`: as `configuration.to_keep` gives it."""
        del results, kept
        return None

    @classmethod
    def beneath(cls, values: Mapping[str, Any], home: Path) -> dict[str, Any]:
        """Return what a nightly run adds to a configuration's values where these say nothing of it: where labels are.

        `home`: PLIANT_HOME of the system's service.
        """
        if not cls.learns or "feedback" in values:
            return {}
        return {"feedback": {"outcomes": str(home / "outcomes" / cls.system)}}

    @classmethod
    def flow(cls) -> Flow[..., dict[str, Any]]:
        """Return the flow as Prefect knows it."""

        def pipeline(
            config: str | None = None,
            overrides: dict[str, Any] | None = None,
            reason: str | None = None,
            new_task: bool = False,
            nightly: bool = False,
        ) -> dict[str, Any]:
            """Train, profile, judge and publish the system.

            `config`: path of a TOML file; `overrides`: values laid over its top level (see flows/SYSTEM/config.py);
            `reason`: the alarm that started it (see flows/watch); `new_task`: whether it may release a task that the live
            release lacks; `nightly`: without a file, the configuration is that of the live release
            (flows/configuration.py). Returns what was released: model name -> version, and whether all was promoted.
            """
            del reason  # flows/watch/triggered.py acts on it
            given = configuration.to_train(
                settings.read(), cls.system, config, overrides, cls.beneath if nightly else None
            )
            released = merged([cls.train(each, new_task) for each in given])
            clean(cls.system)
            return asdict(released)

        return system_flow(cls.system, cls.system)(pipeline)

    @classmethod
    def train(cls, given: Configuration, new_task: bool) -> Release:
        """Train, judge and publish what one configuration says."""
        project = settings.read()
        config = systems.system(cls.system).part("flows", "config").read(given.source, given.laid_over)
        check_device(config)  # before anything is trained
        recorder = Recorder(given.to_json((), beneath=given.beneath), inputs_of((given.file, given.laid_over)))
        self = cls(config, tasks(FolderStore(project.store), recorder), recorder=recorder)
        with self.logged() as opened:
            return self._train(project, given, new_task, opened)

    @contextmanager
    def logged(self) -> Iterator[Opened]:
        """Give the flow's run in MLflow, which ends as the block does, and holds what its stages learnt and cost.

        It is opened now or, where the registry does not answer yet, when it is needed first.
        """
        opened = cache(self._open)
        with suppress(UnreachableError):
            opened()
        try:
            yield opened
        except BaseException as error:
            with suppress(RegistryError):  # why the block failed says more
                self._log(opened())
            with suppress(RegistryError):
                opened().fail(error)
            raise
        retried(lambda: opened().end("FINISHED"))

    def _open(self) -> Run:
        flow_run, tags = current_run(), {"git_commit": commit(), "pliant.trigger": trigger()}
        page = url_for("flow-run", obj_id=flow_run.id) if flow_run else None
        links = f"Made by [a run of Prefect's flow {self._title}]({page})." if page else ""
        run = self.registry.start(self._title, tags | ({"pliant.flow_run": page} if page else {}), links)
        run.params(flatten(self.parameters()))
        if page:
            about, address = "Parameters, curves, tables and figures", run.url(FlowSettings.read().mlflow_url)
            create_link_artifact(address, "The run in MLflow", key=f"{self.system}-mlflow", description=about)
        return run

    @property
    def _title(self) -> str:
        return self.run_name or self.system

    def _log(self, run: Run) -> None:
        """Log what the stages learnt and cost so far."""
        run.curves(self.recorder.curves())
        run.metrics(self.recorder.metrics())

    def name(self, names: Sequence[str], opened: Opened) -> None:
        """Name the runs in Prefect and MLflow after system, trigger and tasks, which are tags in Prefect, too."""
        known = f"{self._title} {trigger()}: {', '.join(names)}"
        if (flow_run := current_run()) is not None:
            with get_client(sync_client=True) as client:
                tags = client.read_flow_run(flow_run.id).tags  # an alarm's may have come since
                client.update_flow_run(flow_run.id, name=known, tags=sorted({*tags, self.system, trigger(), *names}))
        with suppress(UnreachableError):
            opened().describe("It is under way.", known)

    def _train(self, project: settings.Settings, given: Configuration, new_task: bool, opened: Opened) -> Release:
        with bar(self.loading) as progress:
            units = self.load(progress)
            progress(1, 1)
        self.name([model.removeprefix(self.model) for model in self.models(units)], opened)
        kept = configuration.to_keep(project, self.system, given, self.models(units), new_task, self.naming)
        results = [self.make(unit) for unit in units]
        unchanged = self.unchanged(results, kept)
        if unchanged is not None:
            opened().describe(f"Nothing is released: {unchanged.reason}.")
            return unchanged
        below, config = [], cast(Any, self.config)
        for each in zip(units, results, strict=True):
            compared = self.compared(*each)
            below.append(gate.below_linear(compared, config.gate.below_linear) if compared else "")
        return self.publish(results, self.verdicts(results, below), kept, opened)

    def verdicts(self, results: Sequence[R], below: Sequence[str]) -> dict[str, Judged[Any]]:
        """Judge every result, in a task of its own; `below`: for each, why it is rejected anyway."""

        def judged(result: R, champion: S | None, challenger: S, reason: str) -> Judged[Any]:
            name = result.name

            @limited_task("gate")
            def gated() -> Judged[Any]:
                config: Any = self.config
                with bar(f"{name}: gate" if name else "gate") as progress:
                    now = None if champion is None else self.beside(result, champion, challenger, progress)
                    judge = partial(type(self).judge, champion, challenger, config.gate, config.reference, progress)
                    verdict = judge() if now is None else judge(beside=now)
                    progress(1, 1)
                new, old = (type(self).device_of(side) for side in (challenger, champion or challenger))
                verdict = gate.overruled(verdict, reason or gate.other_device(new, old, config.other_device))
                log(f"{name}: {'passed' if verdict.passed else 'failed'}, {verdict.reason}")
                return verdict

            return gated()

        return {
            result.name: judged(result, *sides, reason)
            for result, sides, reason in zip(results, self.sides(results), below, strict=True)
        }

    def publish(self, results: Sequence[R], verdicts: Verdicts, kept: Mapping[str, str], opened: Opened) -> Release:
        """Log to the run, register what is new, and release all that the gate let pass, together."""

        @publish_task()
        def published() -> Release:
            with bar("publish") as progress:
                released = self.released(results, verdicts, kept, opened(), progress)
            for shown in self.tables(results):
                create_table_artifact(shown.rows, key=shown.key, description=shown.description)
            show_release(self.system, self.summary(results, verdicts), released)
            return released

        return published()

    def released(
        self, results: Sequence[R], verdicts: Verdicts, kept: Mapping[str, str], run: Run, progress: Progress
    ) -> Release:
        """As `publish`, outside of a task; `progress` ends at 1 of 1."""
        publishing = publication(self.registry, run, self.report(verdicts), kept, gate.deciding(verdicts))
        passed: list[str] = []
        for done, result in enumerate(results, start=1):
            names = self.register(publishing, result)
            passed += names if verdicts[result.name].passed else ()
            progress(done, len(results))
        for shown in self.tables(results):
            run.table(shown.key, shown.rows)
            if shown.ys:
                run.page(shown.key, chart.page(shown.description, shown.rows, shown.x, shown.ys, shown.label))
        self._log(run)
        run.document(DOCUMENT, asdict(self.recorder.record()))
        before = publishing.kept_out(passed)
        if not before:
            publishing.promote(passed)
        promoted = not before and all(each.passed for each in verdicts.values())
        released = publishing.release(promoted, before or gate.reason(verdicts), before)
        run.describe(f"{'Promoted' if promoted else 'Not promoted'}.\n\n{before}\n\n{gate.to_markdown(verdicts)}")
        return released


def trigger() -> str:
    """Return what started the flow."""
    run = current_run()
    if run is not None and run.parameters.get("reason"):
        return "after an alarm"
    return "on schedule" if run is not None and run.auto_scheduled else "by hand"


def tasks(store: FolderStore, recorder: Recorder | None = None) -> RunStage:
    """Return what runs a stage as a task of Prefect, which shows it as `Cached` where the store keeps its result."""
    recorder = recorder or Recorder()

    def run(stage: Stage[A], *args: Any) -> StageResult[A]:
        key = stage.key(*args)

        def unless_kept() -> Any:
            result = stage.kept(store, key)
            if result is not None:
                log(f"{stage.task}: an earlier result is kept: {key}")
                return Completed(name="Cached", data=result)
            began = time.monotonic()
            try:
                return stage.work(store, key, *args)
            finally:
                recorder.seconds[key] = time.monotonic() - began

        more = RETRIED_DOWNLOAD if stage.download else {}
        returned: Any = limited_task(stage.task, task_run_name=stage.run_name(*args), **more)(unless_kept)()
        result: StageResult[A] = returned.result() if isinstance(returned, State) else returned
        recorder.results.append(result)
        return result

    return run


def system_flow(name: str, system: str) -> Callable[[Callable[P, dict[str, Any]]], Flow[P, dict[str, Any]]]:
    """A flow that releases a system; its parameter `reason` says why an alarm started it (flows/watch/triggered.py)."""

    def decorate(function: Callable[P, dict[str, Any]]) -> Flow[P, dict[str, Any]]:
        seconds = 3600 * FlowSettings.read().flow_hours
        return flow(name=name, validate_parameters=True, timeout_seconds=seconds)(triggered(system, function))

    return decorate


def limited_task(name: str, **more: Any) -> Callable[[Callable[P, T]], Task[P, T]]:
    """A task with a time limit. Prefect keeps no result of it: what a stage makes is in the store."""
    seconds = 3600 * FlowSettings.read().task_hours
    return task(name=name, timeout_seconds=seconds, cache_policy=NO_CACHE, persist_result=False, **more)


def publish_task() -> Callable[[Callable[P, T]], Task[P, T]]:
    """A task that writes to the registry, and is tried again where that is busy, or away for less than a minute or so."""
    waits = list(OUTAGE_WAITS)
    return limited_task("publish", retries=len(waits), retry_delay_seconds=waits, retry_condition_fn=is_transient)


def is_transient(task: Any, run: Any, state: Any) -> bool:
    """Whether a failure may pass by itself, such as a busy registry; not bad input. The hub's client retries by itself."""
    del task, run
    error = state.result(raise_on_failure=False)
    return isinstance(error, RegistryError | OSError) and not isinstance(error, RefusedError)


RETRIED_DOWNLOAD: Mapping[str, Any] = {"retries": 2, "retry_delay_seconds": 5, "retry_condition_fn": is_transient}


def show_release(system: str, summary: str, released: Release) -> None:
    """Show in Prefect's UI what was released, and emit the event of it; `summary`: what the gate said."""
    outcome = "promoted" if released.promoted else "not promoted"
    lines = [f"- `{name}` version {version}" for name, version in released.versions.items()]
    text = "\n".join([f"# {system}: {outcome}", "", summary, "", *lines])
    create_markdown_artifact(text, key=f"{system}-release", description="What the gate said and what was published")
    emit_release(system, released)


@limited_task("clean")
def clean(system: str) -> None:
    """Remove what is no longer needed; the last stage of every flow."""
    retention.after_flow(settings.read(), system)
