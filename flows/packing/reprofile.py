"""`pliant profile packing`: measure the champions' iterations on the device at hand, plan again, publish the plans.

For a machine of another class than the one that was profiled: the service refuses a plan measured elsewhere. Generator,
predictor and the observed requests are kept.
"""

from __future__ import annotations

from dataclasses import replace

from rich.console import Console
from rich.table import Table

from flows import settings
from flows.packing.config import PackingFlowConfig
from flows.packing.live import GENERATOR, PREDICTOR, Live, generator, live, open_registry, predictor
from flows.packing.measure import measure, token_bytes
from flows.packing.packages import plan_package
from flows.packing.plan import Choice, told
from flows.packing.report import log_plan
from flows.packing.stages import finish
from flows.release import commit
from pliant.errors import RegistryError
from pliant.packing.artifact import Packing
from pliant.progress import Progress, share
from registry.mlflow_store import MlflowRegistry
from registry.names import PACKING_PREFIX
from registry.store import FolderStore


def reprofile(device: str, threads: int, progress: Progress) -> dict[str, int]:
    """Print how the policies fare and give the version published per model."""
    told_here = settings.read()
    registry, store = open_registry(told_here), FolderStore(told_here.store)
    champions = live(registry)
    if not champions:
        raise RegistryError("the registry holds no champion of the packing system: run `pliant train packing` first")
    published = {}
    for number, (name, one) in enumerate(champions.items()):
        part = share(progress, 100 * number // len(champions), 100 * (number + 1) // len(champions))
        published[name] = _again(registry, store, one, device, threads, part)
    return published


def config_of(one: Live, device: str, threads: int, base: PackingFlowConfig) -> PackingFlowConfig:
    """What the flow was told, for this device; what a plan does not remember is `base`'s."""
    record = one.record
    return replace(
        base,
        name=one.packing.name,
        memory=record.memory,
        steps=record.steps,
        plan=record.plan,
        reference=record.reference,
        device=device,
        threads=threads,
    )


def _again(
    registry: MlflowRegistry, store: FolderStore, one: Live, device: str, threads: int, progress: Progress
) -> int:
    config, loaded = config_of(one, device, threads, PackingFlowConfig()), generator(registry, one)
    learnt = predictor(registry, one)
    measured = measure(config, loaded, share(progress, 0, 70))
    draft = replace(
        one.packing,
        device_class=measured.device,
        memory=measured.memory,
        kv_bytes=token_bytes(loaded),
        steps=measured.steps,
    )
    packing, choice = finish(draft, loaded.context, config, share(progress, 70, 100))
    key = f"packing/plan-here-{packing.name}"
    store.save(key, packing)
    record = replace(one.record, threads=threads)
    versions = (one.version(GENERATOR), one.version(PREDICTOR))
    told_of = (choice, record, learnt.data, one.origin)
    package = plan_package(packing, loaded.context, versions, store.path(key), *told_of)
    with registry.run("packing profile", {"git_commit": commit()}) as run:
        log_plan(run, packing, choice)
        version = registry.publish(run, package).version
    registry.promote(package.name, version)
    _show(packing, choice, version)
    return version


def _show(packing: Packing, choice: Choice, version: int) -> None:
    columns = ("policy, simulated", "mean ms", "p99 ms", "tokens/s", "computed again")
    table = Table(*columns, title=f"{packing.name} on {packing.device_class}")
    for one in choice.policies:
        milliseconds = (f"{1000 * seconds:.0f}" for seconds in (one.mean, one.p99))
        table.add_row(one.policy, *milliseconds, f"{one.tokens_per_second:.0f}", f"{one.recomputed:.1%}")
    console = Console()
    console.print(table)
    console.print(f"The plan: {told(choice)}.")
    console.print(f"Published as version {version} of {PACKING_PREFIX}{packing.name}, now champion.")
