"""The bins flow: the stages of each stream (stages.py), then gate and publication."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pliant.bins.artifact import Bins
from pliant.bins.runtimes.cache import cache_folder, verify
from pliant.errors import ArtifactError
from pliant.flows import settings
from pliant.flows.arithmetic import half_of
from pliant.flows.beside import NOTHING, Beside, where_it_runs
from pliant.flows.bins import plan, publish
from pliant.flows.bins.beside import beside
from pliant.flows.bins.champions import Score, fetch_encoder, fetch_score
from pliant.flows.bins.config import BinsFlowConfig
from pliant.flows.bins.gate import Candidate, judge
from pliant.flows.bins.plan import Weighed
from pliant.flows.bins.stages import BINS, ENCODER, LATENCIES, LENGTHS, Stream, StreamResults, load_streams
from pliant.flows.champions import load_champions
from pliant.flows.gate import to_markdown
from pliant.flows.pipeline import Compared, Pipeline, Shown, Verdicts
from pliant.flows.release import Publication
from pliant.flows.stage import noted
from pliant.flows.watch.deployments import Nightly
from pliant.progress import Progress
from pliant.registry.names import BINS_PREFIX


class BinsPipeline(Pipeline[BinsFlowConfig, Stream, StreamResults, Candidate]):
    system = "bins"
    model = BINS_PREFIX
    naming = ("streams", "data", "encoder")
    judge = staticmethod(judge)
    device_of = staticmethod(lambda side: side.bins.device_class)

    def load(self, progress: Progress) -> list[Stream]:
        half_of(self.config.arithmetic, self.config.device)
        return load_streams(self.config, progress)

    def make(self, unit: Stream) -> StreamResults:
        """As the pipeline says. What has lost its compiled files is compiled, measured and chosen again."""
        run, config, home = self.run, self.config, settings.read().home
        encoder = run(ENCODER, config, unit)
        lengths = run(LENGTHS, config, unit, encoder)
        latencies = run(LATENCIES, config, unit, encoder, home)
        bins = run(BINS, config, unit, encoder, lengths, latencies, home)
        plan = bins.load()
        try:  # whether the compiled files that these bins vouch for are there, unaltered
            verify(cache_folder(home, plan.encoder, plan.device_class), plan.files)
        except ArtifactError:
            for gone in (latencies, bins):
                gone.store.remove(gone.key)
            latencies = run(LATENCIES, config, unit, encoder, home)
            bins = run(BINS, config, unit, encoder, lengths, latencies, home)
        repeats = str(unit.data.repeats) if unit.data and unit.data.repeats else None
        return StreamResults(unit.name, encoder.noted(repeats=repeats), lengths, latencies, bins, unit.data)

    def compared(self, unit: Stream, result: StreamResults) -> list[Compared]:
        return [(f"the encoder of {result.name}", unit.config.data, result.linear)] if result.linear else []

    def sides(self, results: Sequence[StreamResults]) -> Iterator[tuple[Candidate | None, Candidate]]:
        registry, champions = self.registry, load_champions(self.registry, Bins)
        for result in results:
            champion, score = champions.get(result.name), result.noted("score")
            challenger = Candidate(result.bins.load(), Score(**score) if score else None)
            present = Candidate(champion.artifact, fetch_score(registry, champion)) if champion else None
            yield present, challenger

    def beside(self, result: StreamResults, champion: Candidate, challenger: Candidate, progress: Progress) -> Beside:
        old, new = champion.bins, challenger.bins
        if (old.encoder, old.engine, old.precision) == (new.encoder, new.engine, new.precision):
            return NOTHING
        scores = champion.score, challenger.score
        tested = scores[0] is not None and scores[1] is not None and scores[0].data == scores[1].data

        def measure() -> Beside:
            encoder = fetch_encoder(self.registry, load_champions(self.registry, Bins)[result.name])[0]
            sides = (encoder, old), (result.encoder.load(), new)
            return beside(self.config, sides, result.data if tested else None, settings.read().home, progress)

        return where_it_runs(measure)

    @classmethod
    def beneath(cls, values: Mapping[str, Any], home: Path) -> dict[str, Any]:
        streams = values.get("streams", ())
        if "lengths" in values or any(isinstance(stream, Mapping) and "lengths" in stream for stream in streams):
            return {}
        return {"lengths": [f"journal:{home / 'journals' / 'bins.jsonl'}", "data"]}

    def register(self, published: Publication, result: StreamResults) -> list[str]:
        return publish.register(published, self.config, result)

    def tables(self, results: Sequence[StreamResults]) -> list[Shown]:
        weighed = {result.name: noted(Weighed, result.bins.notes, "weighed") for result in results}
        rows = [{"stream": name, **row} for name, trials in weighed.items() for row in plan.rows(trials)]
        timed = [
            {
                "stream": result.name,
                "tokens": n,
                "static ms": round(1000 * static, 3),
                "dynamic ms": round(1000 * measured.dynamic.at(n, 1), 3),
            }
            for result, measured in ((each, each.latencies.load()) for each in results)
            for n, static in measured.alone().items()
        ]
        about = "Milliseconds of a text alone, by its length"
        return [
            Shown(rows, "bins-shapes", "Static shapes against the dynamic runtime"),
            Shown(timed, "bins-latencies", about, "tokens", ["static ms", "dynamic ms"], "stream"),
        ]

    def summary(self, results: Sequence[StreamResults], verdicts: Verdicts) -> str:
        plans = []
        for result in results:  # which static shapes are kept, in which precision, and what an engine could not do
            notes, arithmetic = result.bins.notes, result.latencies.notes.get("arithmetic", "")
            sentences = plan.describe(noted(Weighed, notes, "weighed")), arithmetic, *notes.get("fallbacks", ())
            plans.append(f"- {result.name}: {'; '.join(filter(None, sentences))}")
        return f"The gate:\n\n{to_markdown(verdicts)}\n\nBins:\n\n" + "\n".join(plans)


bins = BinsPipeline.flow()
NIGHTLY = (
    Nightly(
        "bins",
        "pliant.flows.bins.flow.bins",
        "0 5 * * *",
        "Trains, compiles, profiles and promotes the bins system, stream by stream, and adapts the bins to what the journal "
        "of a service says was asked (without one: to the texts of the data). Measures nothing where nothing changed.",
    ),
)
