"""`pliant simulate tokens`: any load on the champion's profile, in virtual time."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping

import numpy as np
from rich.console import Console
from rich.table import Table

from pliant import comparison, loads, workload
from pliant.errors import InputError, RegistryError
from pliant.flows import settings
from pliant.flows.tokens.champions import load_champion
from pliant.flows.tokens.stages import Bundle
from pliant.protocol import Request, Scheduler
from pliant.report import Report, report
from pliant.simulator import simulate
from pliant.tokens.bound import Devices, fluid
from pliant.tokens.policies import make
from pliant.tokens.scheduler import knowledge as tokens_knowledge
from pliant.tokens.simulated import ReferenceConfig, SimulatedDevice, kinds, reference_load

MOST_REQUESTS = 10_000_000
KINDS = f"{loads.DRAWN} or trace:FILE"


def run(args: Namespace) -> None:
    """`pliant simulate tokens`."""
    simulate_load(args.load, args.policy, args.gamma, args.workers, args.seed)


def simulate_load(load: str, policy: str, gamma: int | None, workers: int, seed: int) -> Report:
    """Print and return the report of `load` under a policy. Raises `InputError`, `RegistryError` without a champion."""
    bundle = load_champion(settings.read())
    if bundle is None:
        raise RegistryError("the registry holds no champion of the tokens system: run `pliant train tokens` first")
    requests = requests_of(load, bundle, workers, seed)
    known = tokens_knowledge(bundle.profile, bundle.tasks)
    # The scheduler plans with accuracies of the profiling split, the device has those of the test split.
    device = SimulatedDevice(known.latency, _tested(bundle), requests, np.random.default_rng(seed), jitter=0.05)
    own = comparison.resolve("tokens", policy)
    if isinstance(own, str):
        scheduler: Scheduler = make(policy, known, workers, gamma)
    elif gamma is not None:
        raise InputError("gamma", gamma, f"left out with the installed policy {policy}")
    else:
        scheduler = comparison.scheduler(own(known), workers)
    result = report(simulate(scheduler, requests, device))
    bound = fluid(requests, Devices(bundle.profile.latency, _tested(bundle), workers)).utility
    _print(result, bound, f"{load} on {workers} x {bundle.profile.device}, policy {policy}")
    return result


def _tested(bundle: Bundle) -> dict[str, Mapping[int, float]]:
    return {task.name: task.test_accuracy for task in bundle.tasks}


def requests_of(load: str, bundle: Bundle, workers: int, seed: int) -> list[Request]:
    """Return the load's requests in order of arrival. Raises `InputError` for an unknown load, or one too large."""
    names = [task.name for task in bundle.tasks]
    rng = np.random.default_rng(seed)
    if load == "reference":
        capacity = bundle.profile.latency.throughput(0, bundle.profile.latency.batches[-1])
        return list(reference_load(names, workers * capacity, seed).requests)
    if load.startswith(loads.TRACE):
        times = loads.trace(load, (), MOST_REQUESTS)[loads.SECONDS]
    else:
        times = loads.drawn(load, KINDS, MOST_REQUESTS, rng)
    return workload.requests(times, kinds(names, ReferenceConfig()), rng)


def _print(result: Report, bound: float, title: str) -> None:
    table = Table(title=title, show_header=False)
    for name in ("requests", "offered", "utility", "attainment", "accuracy", "goodput", "p50", "p99", "batch"):
        value = getattr(result, name)
        table.add_row(name, f"{value:.4g}" if isinstance(value, float) else str(value))
    table.add_row("of the fluid bound", f"{result.utility / bound:.1%}" if bound else "-")
    for name in ("outcomes", "drops", "settings"):
        table.add_row(name, ", ".join(f"{k}: {v}" for k, v in getattr(result, name).items()))
    Console().print(table)
