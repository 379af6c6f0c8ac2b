"""The cascade flow: the stages of each task (stages.py), then gate and publication."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from prefect.artifacts import create_table_artifact

from pliant import labelling
from pliant.cascade.artifact import Cascade, Outputs
from pliant.cascade.evaluate import with_test_accuracy
from pliant.errors import PliantError
from pliant.flows import settings
from pliant.flows.arithmetic import half_of
from pliant.flows.beside import NOTHING, Beside, where_it_runs
from pliant.flows.cascade import feedback, publish
from pliant.flows.cascade.beside import beside
from pliant.flows.cascade.champions import fetch_levels, outputs_on_test, store_levels
from pliant.flows.cascade.config import CascadeFlowConfig, TaskConfig
from pliant.flows.cascade.gate import EvaluatedCascade, judge
from pliant.flows.cascade.stages import (
    OUTPUTS,
    TaskData,
    TaskResults,
    in_precision,
    load_data,
    load_unlabelled,
    questions,
    run_task,
)
from pliant.flows.champions import Champion, load_champions
from pliant.flows.gate import to_markdown
from pliant.flows.pipeline import Compared, Pipeline, Shown, Verdicts
from pliant.flows.progress import say
from pliant.flows.release import Publication
from pliant.flows.watch.deployments import Nightly
from pliant.progress import Progress
from pliant.registry.names import CASCADE_TASK
from pliant.registry.store import FolderStore
from pliant.training.text_data import TextData

logger = logging.getLogger("pliant.flows")


class CascadePipeline(Pipeline[CascadeFlowConfig, TaskData, TaskResults, EvaluatedCascade]):
    system = "cascade"
    model = CASCADE_TASK
    learns = True
    naming = ("tasks", "data")
    judge = staticmethod(judge)
    device_of = staticmethod(lambda side: side.cascade.device)

    def load(self, progress: Progress) -> list[TaskData]:
        config = self.config
        half_of(config.arithmetic, config.device)
        loaded = load_data(config)
        progress(1, 1)
        return [self._unit(*pair) for pair in zip(config.tasks, loaded, strict=True)]

    def _unit(self, task: TaskConfig, data: TextData) -> TaskData:
        fitted, texts = feedback.planned_without_labels(self.config, data, load_unlabelled(task, data))
        labels = labelling.answers(labelling.folder_of(settings.read().home_of("cascade")), data.name)
        address = task.data or task.unlabelled or ""
        return TaskData(self.config.levels_of(task), fitted, address, texts, tuple(labels))

    def make(self, unit: TaskData) -> TaskResults:
        result = run_task(self.run, self.config, unit)
        asking = questions(self.config, result)
        if asking.texts:
            say(f"{asking.purpose} `pliant label cascade {unit.name}` takes them.")
        labelling.ask(labelling.folder_of(settings.read().home_of("cascade")), asking)
        return result

    def compared(self, unit: TaskData, result: TaskResults) -> list[Compared]:
        if result.linear is None:
            return []
        return [(f"the largest level of {result.name}", unit.address, result.linear.load())]

    def sides(self, results: Sequence[TaskResults]) -> Iterator[tuple[EvaluatedCascade | None, EvaluatedCascade]]:
        champions = load_champions(self.registry, Cascade)
        promised = {
            task: {candidate.name: candidate.promised for candidate in champion.artifact.candidates}
            for task, champion in champions.items()
        }
        # What labels say of what is served, also where no texts were kept to plan anew with.
        if rows := feedback.label_rows(self.config.feedback, promised):
            create_table_artifact(rows, key="cascade-labels", description="Labels that may teach, by what they are of")
        for result in results:
            champion, test = champions.get(result.name), result.test.load()
            present = self._champion(champion, result, test) if champion else None
            yield present, EvaluatedCascade(result.plan.load(), test, result.texts.named)

    def _champion(self, champion: Champion[Cascade], result: TaskResults, test: Outputs) -> EvaluatedCascade:
        """Return a task's champion, with its outputs on its test split where the store still has them.

        Where labels teach, the test's texts change from night to night: then with its outputs on those of the challenger.
        """
        cascade, store = champion.artifact, FolderStore(settings.read().store)
        saved = outputs_on_test(champion, store)
        if self.config.feedback.outcomes is None or (saved is not None and saved.data == test.data):
            return EvaluatedCascade(cascade, saved)
        try:
            digests = tuple(level.classifier for level in cascade.levels)
            if (digests, cascade.precision) != (test.classifiers, test.precision):
                config = in_precision(self.config, cascade.precision)
                levels = store_levels(self.registry, champion, store)
                test = self.run(OUTPUTS, config, result.texts.held, levels, "test").load()
            return EvaluatedCascade(with_test_accuracy(cascade, test), test)
        except PliantError as error:  # of other classes, or of prunings that are not run any more
            logger.warning("the champion of %s cannot be run on today's test texts: %s", result.name, error)
            return EvaluatedCascade(cascade, saved)

    def beside(
        self, result: TaskResults, champion: EvaluatedCascade, challenger: EvaluatedCascade, progress: Progress
    ) -> Beside:
        old, new = champion.cascade, challenger.cascade
        digests = ([level.classifier for level in each.levels] for each in (old, new))
        if old.precision == new.precision and next(digests) == next(digests):
            return NOTHING

        def measure() -> Beside:
            levels = fetch_levels(self.registry, load_champions(self.registry, Cascade)[result.name])
            sides = (old, levels), (new, {each.digest: each.load() for each in result.levels.values()})
            return beside(self.config, sides, result.test.load().levels[-1].length.tolist(), progress)

        return where_it_runs(measure)

    def register(self, published: Publication, result: TaskResults) -> list[str]:
        return publish.register(published, self.config, result)

    def tables(self, results: Sequence[TaskResults]) -> list[Shown]:
        cascades = [result.plan.load() for result in results]
        rows = [{"task": cascade.task, **row} for cascade in cascades for row in publish.rows(cascade)]
        timed = [
            {"task": cascade.task, "level": level.name, **row}
            for cascade in cascades
            for level in cascade.levels
            for row in level.latency.rows("tokens")
        ]
        return [
            Shown(
                *(rows, "cascade-candidates", "What the candidates cost and earn"),
                *("ms alone", ["test accuracy", "promised"], "candidate"),
            ),
            Shown(timed, "cascade-latencies", "Milliseconds of a batch, by level and length"),
        ]

    def summary(self, results: Sequence[TaskResults], verdicts: Verdicts) -> str:
        arithmetic = "\n".join(f"- {result.name}: {result.arithmetic}" for result in results if result.arithmetic)
        chosen = f"\n\nPrecision:\n\n{arithmetic}" if arithmetic else ""
        return f"The gate:\n\n{to_markdown(verdicts)}{chosen}"


cascade = CascadePipeline.flow()
NIGHTLY = (
    Nightly(
        "cascade",
        "pliant.flows.cascade.flow.cascade",
        "0 4 * * *",
        "Retrains, profiles, plans and promotes the cascade system, task by task, also from labels that clients reported; "
        "trains nothing where nothing changed.",
    ),
)
