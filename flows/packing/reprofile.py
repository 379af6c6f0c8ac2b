"""`pliant profile packing`: measure the champions' iterations on the device at hand, plan again, publish the plans.

For a machine of another class than the one that was profiled: the service refuses a plan measured elsewhere. Generator,
predictor and the observed requests are kept.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pliant.flows import settings
from pliant.flows.champions import Champion, load_champions
from pliant.flows.packing.champions import (
    GENERATOR,
    PREDICTOR,
    Record,
    fetch_generator,
    fetch_predictor,
    origin_of,
)
from pliant.flows.packing.config import PackingFlowConfig
from pliant.flows.packing.plan import describe
from pliant.flows.packing.publish import log_plan, plan_package, rows
from pliant.flows.packing.stages import Measure, finish, token_bytes
from pliant.flows.packing.stages import measure as measure_embedded
from pliant.flows.release import open_registry
from pliant.flows.reprofile import Profiled
from pliant.flows.reprofile import reprofile as reprofile_champions
from pliant.packing.artifact import Packing
from pliant.progress import Progress, share
from pliant.registry.package import Package


def reprofile(
    device: str, threads: int, progress: Progress, other_device: bool = False, measure: Measure = measure_embedded
) -> dict[str, int]:
    """Print the policies' figures and return each model's version. Raises as `pliant.flows.reprofile.reprofile`."""
    registry = open_registry(settings.read(), "packing")

    def again(champion: Champion[Packing], part: Progress) -> Profiled:
        config = config_of(champion, device, threads, PackingFlowConfig())
        generator, data = fetch_generator(registry, champion), fetch_predictor(registry, champion).data
        measured = measure(config, generator, share(part, 0, 70))
        draft = replace(
            champion.artifact,
            device_class=measured.device,
            memory=measured.memory,
            kv_bytes=token_bytes(generator.config, measured.precision),
            steps=measured.steps,
            precision=measured.precision,
            engine=measured.engine,
        )
        packing, choice = finish(draft, generator.context, config, share(part, 70, 100))
        record = replace(champion.record(Record), threads=threads)
        versions, origin = (champion.version(GENERATOR), champion.version(PREDICTOR)), origin_of(champion)

        def package(folder: Path) -> Package:
            return plan_package(packing, generator.context, versions, folder, choice, record, data, origin)

        title = f"{packing.name} on {packing.device_class}, engine {packing.engine}, simulated"
        sentences = [f"The plan: {describe(choice)}."]
        return Profiled(packing, package, title, rows(choice), sentences, lambda run: log_plan(run, packing, choice))

    champions = load_champions(registry, Packing)
    device_of = lambda packing: packing.device_class  # noqa: E731
    return reprofile_champions("packing", champions, device, threads, device_of, again, progress, other_device)


def config_of(champion: Champion[Packing], device: str, threads: int, base: PackingFlowConfig) -> PackingFlowConfig:
    """Return the flow's settings for this device; those that a plan does not remember are `base`'s."""
    record = champion.record(Record)
    return replace(
        base,
        name=champion.artifact.name,
        memory=record.memory,
        steps=record.steps,
        plan=record.plan,
        reference=record.reference,
        device=device,
        threads=threads,
    )
