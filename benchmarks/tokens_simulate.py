"""`pliant simulate tokens`: any load on the champion's profile, in virtual time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from flows import settings
from flows.tokens_publish import champion
from flows.tokens_stages import Bundle
from pliant.errors import InputError, RegistryError
from pliant.protocol import Request
from pliant.report import Report, report
from pliant.simulate import simulate
from pliant.systems import tokens_config
from pliant.tokens.reference import ReferenceConfig, kinds, reference_load
from pliant.tokens.scheduler import TokensScheduler
from pliant.tokens.simulated import SimulatedDevice
from pliant.workload import poisson, recorded, requests

MOST_REQUESTS = 10_000_000


def simulate_load(load: str, policy: str, gamma: int, workers: int, seed: int) -> Report:
    """Print the report of `load` under a policy, and give it back."""
    bundle = champion(settings.read())
    if bundle is None:
        raise RegistryError("the registry holds no champion of the tokens system: run `pliant train tokens` first")
    if policy == "fixed" and gamma not in bundle.profile.latency.settings:
        raise InputError("gamma", gamma, f"one of {bundle.profile.latency.settings}")
    made = _requests(load, bundle, workers, seed)
    config = tokens_config(bundle.profile, bundle.tasks, (gamma,) if policy == "fixed" else None)
    accuracy = {task.name: task.test_accuracy for task in bundle.tasks}
    device = SimulatedDevice(bundle.profile.latency, accuracy, made, np.random.default_rng(seed), jitter=0.05)
    found = report(simulate(TokensScheduler(config, workers), made, device))
    _print(found, f"{load} on {workers} x {bundle.profile.device}, policy {policy}")
    return found


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


def _print(found: Report, title: str) -> None:
    table = Table(title=title, show_header=False)
    for name in ("requests", "offered", "utility", "attainment", "accuracy", "goodput", "p50", "p99", "batch"):
        value = getattr(found, name)
        table.add_row(name, f"{value:.4g}" if isinstance(value, float) else str(value))
    for name in ("outcomes", "drops", "settings"):
        table.add_row(name, ", ".join(f"{k}: {v}" for k, v in getattr(found, name).items()))
    Console().print(table)
