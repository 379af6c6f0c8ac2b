"""The tokens flow: the stages of all tasks of a backbone (stages.py), then gate and publication."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from pliant.flows import settings
from pliant.flows.beside import Beside, where_it_runs
from pliant.flows.gate import to_markdown
from pliant.flows.pipeline import Compared, Pipeline, Shown, Verdicts
from pliant.flows.release import Publication
from pliant.flows.tokens import publish
from pliant.flows.tokens.beside import beside
from pliant.flows.tokens.champions import comparable, load_champion, task_digest, to_measure
from pliant.flows.tokens.config import TokensFlowConfig
from pliant.flows.tokens.gate import judge
from pliant.flows.tokens.stages import (
    Bundle,
    TokensData,
    TokensResults,
    load_data,
    load_upstream,
    run_tasks,
    with_lessons,
)
from pliant.flows.watch.deployments import Nightly
from pliant.progress import Progress
from pliant.registry.names import TOKENS_TASK
from pliant.tokens.points import named
from pliant.training.linear import LinearComparison


class TokensPipeline(Pipeline[TokensFlowConfig, TokensData, TokensResults, Bundle]):
    system = "tokens"
    model = TOKENS_TASK
    loading = "pictures"
    learns = True
    naming = ("data",)
    judge = staticmethod(judge)
    device_of = staticmethod(lambda side: side.profile.device)

    def load(self, progress: Progress) -> list[TokensData]:
        config, original = self.config, load_data(self.config)
        progress(1, 2)
        loaded = (with_lessons(config.feedback, data, config.task.held_out) for data in original)
        return [TokensData(load_upstream(config, original), tuple(original), tuple(loaded))]

    def models(self, units: Sequence[TokensData]) -> list[str]:
        return [self.model + data.name for unit in units for data in unit.tasks]

    def make(self, unit: TokensData) -> TokensResults:
        return run_tasks(self.run, self.config, unit)

    def compared(self, unit: TokensData, result: TokensResults) -> list[Compared]:
        return [
            (f"the task {data.name}", entry.rpartition("=")[2], LinearComparison(**task.notes["linear"]))
            for entry, data, task in zip(self.config.data, unit.tasks, result.tasks, strict=True)
        ]

    def sides(self, results: Sequence[TokensResults]) -> Iterator[tuple[Bundle | None, Bundle]]:
        for result in results:
            champion, digest = load_champion(settings.read()), partial(task_digest, settings.read())
            if champion is not None:
                champion = comparable(self.run, self.config, champion, result.data.tasks, digest)
            yield champion, result.bundle()

    def beside(self, result: TokensResults, champion: Bundle, challenger: Bundle, progress: Progress) -> Beside:
        def measure() -> Beside:
            tasks = {task.name: task.data for task in champion.tasks}
            tested = [data for data in result.data.tasks if tasks.get(data.name) == data.fingerprint]
            anew = [data for _, data in to_measure(champion, result.data.tasks)]
            return beside(self.config, (champion, challenger), [*tested, *anew], progress)

        return where_it_runs(measure)

    def report(self, verdicts: Verdicts) -> Mapping[str, Any]:
        (verdict,) = verdicts.values()
        sides = {"champion": verdict.champion, "challenger": verdict.challenger}
        reports = {name: [asdict(report) for report in side.reports] if side else [] for name, side in sides.items()}
        return {"passed": verdict.passed, "reason": verdict.reason, "bound": list(verdict.challenger.bound), **reports}

    def register(self, published: Publication, result: TokensResults) -> list[str]:
        return publish.register(published, result)

    def tables(self, results: Sequence[TokensResults]) -> list[Shown]:
        rows, timed = list[dict[str, Any]](), list[dict[str, Any]]()
        bundles = [result.bundle() for result in results]
        for bundle in bundles:
            latency = bundle.profile.latency
            for setting in latency.settings:
                accuracies = {task.name: round(task.test_accuracy[setting], 4) for task in bundle.tasks}
                rows.append(
                    {
                        "setting": named(setting),
                        **accuracies,
                        "images/s at batch 32": round(32 / latency.at(setting, 32), 1),
                    }
                )
            timed += latency.rows("setting", named)
        tasks = [task.name for bundle in bundles for task in bundle.tasks]
        about = "What each setting earns on the test split, and how many images a second it takes"
        return [
            Shown(rows, "tokens-trade-off", about, "images/s at batch 32", tasks, "setting"),
            Shown(timed, "tokens-latencies", "Milliseconds of a batch, by setting"),
        ]

    def summary(self, results: Sequence[TokensResults], verdicts: Verdicts) -> str:
        del results
        return f"The gate:\n\n{to_markdown(verdicts)}"


tokens = TokensPipeline.flow()
NIGHTLY = (
    Nightly(
        "tokens",
        "pliant.flows.tokens.flow.tokens",
        "0 3 * * *",
        "Retrains, profiles and promotes the tokens system, also from pictures whose classes clients of a service reported "
        '(docs/tokens.md, "Learning from labels"); trains nothing where nothing changed.',
    ),
)
