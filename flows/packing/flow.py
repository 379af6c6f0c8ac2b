"""The packing flow: the stages of a generator (stages.py), then gate and publication.

What a service has observed since is learnt from by flows/packing/retrain.py.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

from pliant.flows.beside import NOTHING, Beside, where_it_runs
from pliant.flows.champions import load_champions
from pliant.flows.gate import to_markdown
from pliant.flows.packing import publish
from pliant.flows.packing.beside import beside
from pliant.flows.packing.champions import fetch_generator, origin_of
from pliant.flows.packing.config import PackingFlowConfig
from pliant.flows.packing.gate import Candidate, Challenger, challenger_of, champion_against, judge
from pliant.flows.packing.learn import RetrainResults
from pliant.flows.packing.plan import Choice, describe
from pliant.flows.packing.stages import (
    LENGTHS,
    PLAN,
    PREDICTOR,
    STEPS,
    ModelData,
    ModelResults,
    generator_stage,
    load_corpus,
    select_prompts,
)
from pliant.flows.pipeline import Pipeline, Shown, U, Verdicts
from pliant.flows.progress import say, tell
from pliant.flows.release import Publication, Release
from pliant.flows.stage import noted
from pliant.flows.watch.deployments import Nightly
from pliant.packing.artifact import Packing
from pliant.progress import Progress
from pliant.registry.names import PACKING_PREFIX

R = TypeVar("R", ModelResults, RetrainResults)


class JudgedPlans(Pipeline[PackingFlowConfig, U, R, Candidate]):
    """What both flows of packing share: the gate, and what is shown of a plan."""

    system = "packing"
    model = PACKING_PREFIX
    judge = staticmethod(judge)
    device_of = staticmethod(lambda side: side.packing.device_class)

    @abstractmethod
    def challenger(self, result: R) -> Challenger:
        """Return the gate's new side."""

    def sides(self, results: Sequence[R]) -> Iterator[tuple[Candidate | None, Candidate]]:
        for result in results:
            challenger = self.challenger(result)
            yield champion_against(self.registry, challenger), challenger.candidate

    def report(self, verdicts: Verdicts) -> Mapping[str, Any]:
        (verdict,) = verdicts.values()
        return asdict(verdict)

    def tables(self, results: Sequence[R]) -> list[Shown]:
        choices = [noted(Choice, result.plan.notes, "choice") for result in results]
        rows, about = (
            [row for each in choices for row in publish.rows(each)],
            "Policies on the reference workload, simulated",
        )
        return [Shown(rows, "packing-policies", about, "mean_seconds", ["p99_seconds"], "policy")]

    def summary(self, results: Sequence[R], verdicts: Verdicts) -> str:
        plans = [describe(noted(Choice, result.plan.notes, "choice")) for result in results]
        gated = (
            (to_markdown({name: verdict}), plan) for (name, verdict), plan in zip(verdicts.items(), plans, strict=True)
        )
        return "\n\n".join(f"The gate:\n\n{said}\n\nPlan: {plan}" for said, plan in gated)


class PackingPipeline(JudgedPlans[ModelData, ModelResults]):
    naming = ("name", "generator", "prompts", "data")

    def load(self, progress: Progress) -> list[ModelData]:
        corpus = load_corpus(self.config)
        prompts = select_prompts(self.config, corpus)
        progress(1, 1)
        tell("prompts", prompts.repeats)
        return [ModelData(self.config.name, corpus, prompts)]

    def make(self, unit: ModelData) -> ModelResults:
        run, config = self.run, self.config
        generator = run(generator_stage(config), config, unit.corpus)
        lengths = run(LENGTHS, config, generator, unit.prompts)
        predictor = run(PREDICTOR, config, generator, lengths)
        steps = run(STEPS, config, generator)
        plan = run(PLAN, config, generator, lengths, predictor, steps)
        repeats = unit.prompts.repeats and str(unit.prompts.repeats)
        return ModelResults(unit.name, generator, lengths.noted(repeats=repeats), predictor, steps, plan)

    def unchanged(self, results: Sequence[ModelResults], kept: Mapping[str, str]) -> Release | None:
        registry, champions = self.registry, load_champions(self.registry, Packing)
        for result in results:
            champion, digest = champions.get(result.name), result.plan.digest
            if champion is None or champion.published.digest == digest or origin_of(champion) != digest:
                continue
            # The champion was trained or measured further from this very plan: it stays, unjudged.
            why, version = "nothing has changed since the plan that the champion descends from", champion.published
            release = Release(False, why, {version.name: version.version}, (), "")
            registry.commit(release.versions, kept=kept)  # the configuration may be another one nevertheless
            return release
        return None

    def challenger(self, result: ModelResults) -> Challenger:
        metrics = result.predictor.load().metrics  # how each kind did that was made, the published one first
        kinds = sorted(
            (metrics[f"{kind}_pinball"], kind) for kind in ("linear", "encoder") if f"{kind}_pinball" in metrics
        )
        ranked = " against ".join(f"{loss:.4f} ({kind})" for loss, kind in kinds)
        predicted = f"pinball loss of the lengths {ranked}, {metrics['constant_pinball']:.4f} (constant)"
        say(f"{result.name}: {predicted}.")
        return challenger_of(result, result.generator.load())

    def beside(self, result: ModelResults, champion: Candidate, challenger: Candidate, progress: Progress) -> Beside:
        old, new = champion.packing, challenger.packing
        if (old.generator, old.engine, old.precision) == (new.generator, new.engine, new.precision):
            return NOTHING

        def measure() -> Beside:
            generator = fetch_generator(self.registry, load_champions(self.registry, Packing)[result.name])
            return beside(self.config, ((generator, old), (result.generator.load(), new)), progress)

        return where_it_runs(measure)

    def register(self, published: Publication, result: ModelResults) -> list[str]:
        return publish.register(published, self.config, result)


packing = PackingPipeline.flow()
NIGHTLY = (
    Nightly(
        "packing",
        "pliant.flows.packing.flow.packing",
        "0 6 * * *",
        "Trains, observes, profiles, plans and promotes the packing system's generator and its length predictor; trains and "
        "measures nothing where nothing changed.",
        alarmed=False,
    ),
    Nightly(
        "packing-retrain",
        "pliant.flows.packing.retrain.packing_retrain",
        "0 7 * * *",
        "Trains the champion's length predictor further on the outputs that a service observed (it writes them where it is "
        "told to); promoted only through the gate. Releases nothing where too few were observed: after an alarm the packing "
        "flow follows then.",
    ),
)
