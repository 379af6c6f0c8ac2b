"""The packing system's second flow: trains the champion's predictor further on what a service observed.

observed -> predictor -> plan -> gate -> publish. The generator and the measured step times stay. The new predictor and the
plan made with it take the champion's place only where the gate lets them; with too little to learn from the flow releases
nothing and says so. Prefect's part only: the work is in learn.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pliant.errors import RegistryError
from pliant.flows import configuration, settings
from pliant.flows.champions import load_champions
from pliant.flows.packing import config as packing_config
from pliant.flows.packing import learn
from pliant.flows.packing.champions import Record, fetch_generator, fetch_predictor
from pliant.flows.packing.config import PackingFlowConfig
from pliant.flows.packing.flow import JudgedPlans
from pliant.flows.packing.gate import Challenger, challenger_of
from pliant.flows.packing.learn import LoadedChampion, RetrainData, RetrainResults
from pliant.flows.packing.publish import register_retrained
from pliant.flows.packing.reprofile import config_of
from pliant.flows.packing.stages import LEAST
from pliant.flows.pipeline import Shown, system_flow, tasks
from pliant.flows.record import Recorder
from pliant.flows.release import Publication, Release, merged, open_registry
from pliant.flows.watch.deployments import nightly_flows
from pliant.flows.watch.triggered import follow_up
from pliant.outcomes.files import observed_path
from pliant.packing.artifact import Packing
from pliant.progress import Progress, silent
from pliant.registry.names import PACKING_PREFIX
from pliant.registry.store import FolderStore


@dataclass(frozen=True)
class RetrainPipeline(JudgedPlans[RetrainData, RetrainResults]):
    """Of one model: `champion`, and the file that a service observed."""

    champion: LoadedChampion
    path: Path

    run_name = "packing retrain"

    def load(self, progress: Progress) -> list[RetrainData]:
        outputs = learn.read(self.path, self.config.retrain.latest)
        progress(1, 1)
        observed = learn.observed_of(outputs, self.champion, self.config.lengths)
        return [RetrainData(self.config.name, outputs, observed)]

    def make(self, unit: RetrainData) -> RetrainResults:
        lengths = self.run(learn.OBSERVED, unit.observed)
        predictor = self.run(learn.PREDICTOR, self.config, self.champion, lengths)
        plan = self.run(learn.PLAN, self.config, self.champion, lengths, predictor)
        return RetrainResults(unit.name, lengths, predictor, plan, learn.drift(unit.outputs))

    def challenger(self, result: RetrainResults) -> Challenger:
        return challenger_of(result, self.champion.generator)

    def parameters(self) -> dict[str, Any]:
        return asdict(self.config.retrain)

    def register(self, published: Publication, result: RetrainResults) -> list[str]:
        return register_retrained(published, self.champion, result)

    def tables(self, results: Sequence[RetrainResults]) -> list[Shown]:
        rows = [
            {"measure": name, "before": round(result.predictor.notes["before"][name], 4), "after": round(value, 4)}
            for result in results
            for name, value in result.predictor.notes["judged"].items()
        ]
        return [*super().tables(results), Shown(rows, "packing-predictor", "The predictor before and after")]


@system_flow("packing-retrain", "packing")
def packing_retrain(
    observed: str | None = None,
    config: str | None = None,
    overrides: dict[str, Any] | None = None,
    reason: str | None = None,
    nightly: bool = False,
) -> dict[str, Any]:
    """Train the champions' predictors further on the outputs that a service observed; judge and publish.

    `observed`: a file that it wrote, named after its model unless there is only one (default: every champion's file in
    PLIANT_HOME); `config` and `overrides`: as for the packing flow, of which `lengths.held_out`, `retrain`, `gate` and
    `device` count here; `nightly`: without a file, each champion's configuration is that of the live release. With a
    `reason`, the alarm that started it, the packing flow follows where too little was observed to learn from. Returns what
    was released.
    """
    project, path = settings.read(), Path(observed) if observed else None
    registry, home = open_registry(project, "packing"), project.home_of("packing")
    champions = load_champions(registry, Packing)
    if path is not None and len(champions) > 1:
        name = path.name.removesuffix(".jsonl").removesuffix(".1")
        champions = {name: champions[name]} if name in champions else {}
    if not champions:
        named = f" named as {path.name}" if path else ""
        raise RegistryError(f"the registry holds no champion of packing{named}: run `pliant train packing` first")
    laid, configs = overrides or {}, {}
    for name in champions:
        if nightly and config is None:
            given = configuration.of_task(project, "packing", PACKING_PREFIX + name)
            configs[name] = packing_config.read(given.source, {**given.laid_over, **laid})
        else:
            configs[name] = packing_config.read(Path(config) if config else None, laid)
    releases = []
    for name, champion in champions.items():
        loaded = LoadedChampion(champion, fetch_generator(registry, champion), fetch_predictor(registry, champion))
        releases.append(_retrain(configs[name], loaded, path or observed_path(home, name)))
    released = merged(releases)
    if reason and not released.versions:
        follow_up(nightly_flows("packing")["packing"].deployment, reason)
    return asdict(released)


def _retrain(config: PackingFlowConfig, loaded: LoadedChampion, path: Path) -> Release:
    """Retrain one model and return its release; without versions where there is too little to learn from."""
    champion = loaded.champion
    config = config_of(champion, config.device, champion.record(Record).threads, config)
    recorder = Recorder()
    run = tasks(FolderStore(settings.read().store), recorder)
    pipeline = RetrainPipeline(config, run, loaded, path, recorder=recorder)
    units = pipeline.load(silent)
    observed, least, why = units[0].observed, config.retrain.least, ""
    rows = len(observed.output_tokens)
    if min(rows - least, observed.fit - LEAST, rows - observed.fit - LEAST) < 0:
        why = f"a service has observed {rows} outputs of the champion's generator to learn from, fewer than {least}"
    elif loaded.predictor.data == observed.part(held_out=False).fingerprint:
        why = "nothing was observed since the champion's predictor was trained"
    if why:
        return Release(False, f"{champion.artifact.name}: {why} ({path})", {}, (), "")
    with pipeline.logged() as opened:
        pipeline.name([unit.name for unit in units], opened)
        results = [pipeline.make(unit) for unit in units]
        return pipeline.publish(results, pipeline.verdicts(results, [""]), {}, opened)
