"""`pliant profile packing`: measure the champions' iterations on the device at hand, plan again, publish the plans.

For a machine of another class than the one that was profiled: the service refuses a plan measured elsewhere. Generator,
predictor and the observed requests are kept.
"""

from __future__ import annotations

from dataclasses import replace

from rich.console import Console
from rich.table import Table

from flows import settings
from flows.device import check_replaces, configured_class
from flows.packing.champions import (
    GENERATOR,
    PREDICTOR,
    Champion,
    fetch_generator,
    fetch_predictor,
    load_champions,
)
from flows.packing.config import PackingFlowConfig
from flows.packing.measure import Measure, token_bytes
from flows.packing.measure import measure as measure_embedded
from flows.packing.packages import plan_package
from flows.packing.plan import Choice, describe
from flows.packing.report import log_plan
from flows.packing.stages import finish
from flows.progress import shares
from flows.release import commit, open_registry, publish_champion
from pliant.errors import RegistryError
from pliant.packing.artifact import Packing
from pliant.progress import Progress, share
from registry.mlflow_store import MlflowRegistry
from registry.names import PACKING_PREFIX
from registry.store import FolderStore


def reprofile(
    device: str,
    threads: int,
    progress: Progress,
    other_device: bool = False,
    measure: Measure = measure_embedded,
) -> dict[str, int]:
    """Print the policies' figures and return the version published per model.

    Raises `DeviceError` for another class of device than a champion was measured on, unless `other_device` is set.
    """
    project = settings.read()
    registry, store = open_registry(project, "packing"), FolderStore(project.store)
    champions = load_champions(registry)
    if not champions:
        raise RegistryError("the registry holds no champion of the packing system: run `pliant train packing` first")
    here = configured_class(PackingFlowConfig(device=device, threads=threads))
    for name, champion in champions.items():
        check_replaces(name, here, champion.packing.device_class, other_device)
    return {
        champion.packing.name: _reprofile(registry, store, champion, device, threads, measure, part)
        for champion, part in shares(progress, champions.values())
    }


def config_of(champion: Champion, device: str, threads: int, base: PackingFlowConfig) -> PackingFlowConfig:
    """Return the flow's settings for this device; those that a plan does not remember are `base`'s."""
    record = champion.record
    return replace(
        base,
        name=champion.packing.name,
        memory=record.memory,
        steps=record.steps,
        plan=record.plan,
        reference=record.reference,
        device=device,
        threads=threads,
    )


def _reprofile(
    registry: MlflowRegistry,
    store: FolderStore,
    champion: Champion,
    device: str,
    threads: int,
    measure: Measure,
    progress: Progress,
) -> int:
    config, generator = config_of(champion, device, threads, PackingFlowConfig()), fetch_generator(registry, champion)
    data = fetch_predictor(registry, champion).data
    measured = measure(config, generator, share(progress, 0, 70))
    draft = replace(
        champion.packing,
        device_class=measured.device,
        memory=measured.memory,
        kv_bytes=token_bytes(generator.config, measured.precision),
        steps=measured.steps,
        precision=measured.precision,
        engine=measured.engine,
    )
    packing, choice = finish(draft, generator.context, config, share(progress, 70, 100))
    key = f"packing/plan-here-{packing.name}"
    store.save(key, packing)
    record, versions = (
        replace(champion.record, threads=threads),
        (champion.version(GENERATOR), champion.version(PREDICTOR)),
    )
    folder, origin = store.path(key), champion.origin
    package = plan_package(packing, generator.context, versions, folder, choice, record, data, origin)
    tags = {"git_commit": commit()}
    version = publish_champion(registry, "packing profile", package, tags, lambda run: log_plan(run, packing, choice))
    _show(packing, choice, version)
    return version


def _show(packing: Packing, choice: Choice, version: int) -> None:
    columns = ("policy, simulated", "mean ms", "p99 ms", "tokens/s", "computed again")
    table = Table(*columns, title=f"{packing.name} on {packing.device_class}, engine {packing.engine}")
    for policy in choice.policies:
        milliseconds = (f"{1000 * seconds:.0f}" for seconds in (policy.mean, policy.p99))
        table.add_row(policy.policy, *milliseconds, f"{policy.tokens_per_second:.0f}", f"{policy.recomputed:.1%}")
    console = Console()
    console.print(table)
    console.print(f"The plan: {describe(choice)}.")
    console.print(f"Published as version {version} of {PACKING_PREFIX}{packing.name}, now champion.")
