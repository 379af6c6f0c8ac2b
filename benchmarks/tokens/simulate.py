"""`pliant simulate tokens`: any load on the champion's profile, in virtual time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from flows import settings
from flows.tokens.publish import champion, open_registry
from flows.tokens.stages import Bundle
from pliant.errors import InputError, RegistryError
from pliant.protocol import Request
from pliant.report import Report, report
from pliant.simulate import simulate
from pliant.systems import tokens_knowledge
from pliant.tokens.bound import Devices, fluid
from pliant.tokens.policies import make
from pliant.tokens.policy import Knowledge
from pliant.tokens.reference import ReferenceConfig, kinds, reference_load
from pliant.tokens.simulated import SimulatedDevice
from pliant.workload import poisson, recorded, requests
from registry.mlflow_store import CHAMPION
from serving.tokens.variants import load_variants

MOST_REQUESTS = 10_000_000


def simulate_load(load: str, policy: str, gamma: int | None, workers: int, seed: int) -> Report:
    """Print the report of `load` under a policy, and give it back."""
    bundle = champion(settings.read())
    if bundle is None:
        raise RegistryError("the registry holds no champion of the tokens system: run `pliant train tokens` first")
    made = _requests(load, bundle, workers, seed)
    planned, true = _known(bundle, policy)
    rng = np.random.default_rng(seed)
    device = SimulatedDevice(true.latency, true.accuracy, made, rng, jitter=0.05, loading=true.loading)
    found = report(simulate(make(policy, planned, workers, gamma), made, device))
    most = fluid(made, Devices(bundle.profile.latency, _tested(bundle), workers)).utility
    _print(found, most, f"{load} on {workers} x {bundle.profile.device}, policy {policy}")
    return found


def _known(bundle: Bundle, policy: str) -> tuple[Knowledge, Knowledge]:
    """What the scheduler plans with, and what the device does: accuracies of the profiling and of the test split."""
    if policy == "infaas":
        variants = load_variants(open_registry(settings.read()), CHAMPION).knowledge()
        return variants, variants
    known = tokens_knowledge(bundle.profile, bundle.tasks)
    return known, replace(known, accuracy=_tested(bundle))


def _tested(bundle: Bundle) -> dict[str, Mapping[int, float]]:
    return {task.name: task.test_accuracy for task in bundle.tasks}


def _requests(load: str, bundle: Bundle, workers: int, seed: int) -> list[Request]:
    names = [task.name for task in bundle.tasks]
    rng = np.random.default_rng(seed)
    if load == "reference":
        capacity = bundle.profile.latency.throughput(0, bundle.profile.latency.batches[-1])
        return list(reference_load(names, workers * capacity, seed).requests)
    if load.startswith("poisson:"):
        try:
            rate, seconds = (float(part) for part in load.split(":")[1:])
        except ValueError:
            raise InputError("load", load, "poisson:RATE:SECONDS, two numbers") from None
        if not rate * seconds <= MOST_REQUESTS:
            raise InputError("load", load, f"poisson:RATE:SECONDS of at most {MOST_REQUESTS:,} requests")
        return requests(poisson(rate, seconds, rng), kinds(names, ReferenceConfig()), rng)
    return requests(recorded(_counts(Path(load)), 1.0, rng), kinds(names, ReferenceConfig()), rng)


def _counts(path: Path) -> list[float]:
    """Requests per second, from the last numeric column of a parquet file."""
    import pandas

    if not path.is_file():
        raise InputError("load", path, "reference, poisson:RATE:SECONDS or a parquet file")
    try:
        table = pandas.read_parquet(path).select_dtypes("number")
    except Exception as error:
        raise InputError("load", path, f"a readable parquet file ({type(error).__name__})") from error
    if table.shape[1] == 0:
        raise InputError("load", path, "a parquet file with a numeric column of requests per second")
    counts = [float(n) for n in table.iloc[:, -1]]
    if not all(n >= 0 for n in counts) or not sum(counts) <= MOST_REQUESTS:
        limit = f"a parquet file of counts, none missing, each at least 0, of at most {MOST_REQUESTS:,} requests"
        raise InputError("load", path, limit)
    return counts


def _print(found: Report, most: float, title: str) -> None:
    table = Table(title=title, show_header=False)
    for name in ("requests", "offered", "utility", "attainment", "accuracy", "goodput", "p50", "p99", "batch"):
        value = getattr(found, name)
        table.add_row(name, f"{value:.4g}" if isinstance(value, float) else str(value))
    table.add_row("of the fluid bound", f"{found.utility / most:.1%}" if most else "-")
    for name in ("outcomes", "drops", "settings"):
        table.add_row(name, ", ".join(f"{k}: {v}" for k, v in getattr(found, name).items()))
    Console().print(table)
