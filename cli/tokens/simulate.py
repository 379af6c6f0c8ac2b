"""`pliant simulate tokens`: any load on the champion's profile, in virtual time."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from pliant import comparison, loads, workload
from pliant.cli import journal, options
from pliant.cli.plan import Play, Simulation, with_shares
from pliant.errors import InputError, RegistryError
from pliant.flows import settings
from pliant.flows.release import open_registry
from pliant.flows.tokens.champions import load_champion
from pliant.flows.tokens.stages import Bundle
from pliant.protocol import Journal, Request
from pliant.registry.names import TOKENS_PROFILE
from pliant.report import Report, observations, report
from pliant.simulator import simulate
from pliant.tokens.bound import Devices, fluid
from pliant.tokens.points import named
from pliant.tokens.policies import make
from pliant.tokens.scheduler import check_tasks
from pliant.tokens.scheduler import knowledge as tokens_knowledge
from pliant.tokens.simulated import ReferenceConfig, SimulatedDevice, kinds, reference_load
from pliant.worlds import Course

MOST_REQUESTS = 10_000_000
KINDS = f"{loads.DRAWN} or trace:FILE"


def run(args: Namespace) -> None:
    """Print the report of a load under a policy. Raises `InputError`, `RegistryError` without a champion."""
    bundle = _champion(settings.read())
    requests = requests_of(args.load, bundle, args.workers, args.seed)
    result = report(_played(bundle, requests, args.policy, args.gamma, args.workers, args.seed))
    bound = fluid(requests, Devices(bundle.profile.latency, _tested(bundle), args.workers)).utility
    if args.json:
        options.print_json({"policy": args.policy, "device": bundle.profile.device, "bound": bound, **asdict(result)})
    else:
        _print(result, bound, f"{args.load} on {args.workers} x {bundle.profile.device}, policy {args.policy}")


def simulations(
    project: settings.Settings, load: str, policy: str = "default", gamma: int | None = None
) -> list[Simulation]:
    """Return the champion's under a load. Raises `InputError`, `RegistryError` without one."""
    bundle, version = _champion(project), open_registry(project, "tokens").version(TOKENS_PROFILE)
    names = _names(bundle)

    def draw(seed: int) -> tuple[Sequence[Request], Play]:
        play = with_shares(
            lambda some, n, world: observations(_played(bundle, some, policy, gamma, n, seed, world)), names
        )
        return requests_of(load, bundle, 1, seed), play

    tasks = ", ".join(task.name for task in bundle.tasks)
    published = version.created if version else ""

    def lasted(path: Path) -> list[tuple[float, float]]:
        requests = journal.recorded(load, "tokens", MOST_REQUESTS)
        device = SimulatedDevice(bundle.profile.latency, _tested(bundle), requests, np.random.default_rng(0))
        return journal.lasted(path, "tokens", device)

    return [Simulation(tasks, bundle.profile.device, published, draw, lasted)]


def setting_names() -> dict[int, str]:
    """Return the champion's settings by what a reader calls them. Raises `RegistryError` without one."""
    return _names(_champion(settings.read()))


def _names(bundle: Bundle) -> dict[int, str]:
    return {setting: named(setting) for setting in bundle.profile.latency.settings}


def _champion(project: settings.Settings) -> Bundle:
    bundle = load_champion(project)
    if bundle is None:
        raise RegistryError("the registry holds no champion of the tokens system: run `pliant train tokens` first")
    return bundle


def _played(
    bundle: Bundle,
    requests: Sequence[Request],
    policy: str,
    gamma: int | None,
    workers: int,
    seed: int,
    course: Course | None = None,
) -> Journal:
    known = tokens_knowledge(bundle.profile, bundle.tasks)
    check_tasks(known, {request.task for request in requests})
    # The scheduler plans with accuracies of the profiling split, the device has those of the test split.
    jitter = 0.05 if course is None else 0.0
    device = SimulatedDevice(known.latency, _tested(bundle), requests, np.random.default_rng(seed), jitter)
    own = comparison.resolve("tokens", policy)
    if isinstance(own, str):
        return simulate(make(policy, known, workers, gamma), requests, device, course=course)
    if gamma is not None:
        raise InputError("gamma", gamma, f"left out with the installed policy {policy}")
    return simulate(comparison.scheduler(own(known), workers), requests, device, course=course)


def _tested(bundle: Bundle) -> dict[str, Mapping[int, float]]:
    return {task.name: task.test_accuracy for task in bundle.tasks}


def requests_of(load: str, bundle: Bundle, workers: int, seed: int) -> list[Request]:
    """Return the load's requests in order of arrival. Raises `InputError` for an unknown load, or one too large."""
    names = [task.name for task in bundle.tasks]
    rng = np.random.default_rng(seed)
    if load == "reference":
        capacity = bundle.profile.latency.throughput(0, bundle.profile.latency.batches[-1])
        return list(reference_load(names, workers * capacity, seed).requests)
    if load.startswith(loads.JOURNAL):
        return journal.recorded(load, "tokens", MOST_REQUESTS)
    if load.startswith(loads.TRACE):
        times = loads.trace(load, (), MOST_REQUESTS)[loads.SECONDS]
    else:
        times = loads.drawn(load, KINDS, MOST_REQUESTS, rng)
    return workload.requests(times, kinds(names, ReferenceConfig()), rng)


def _print(result: Report, bound: float, title: str) -> None:
    rows = []
    for name in ("requests", "offered", "utility", "attainment", "accuracy", "goodput", "p50", "p99", "batch"):
        value = getattr(result, name)
        rows.append((name, f"{value:.4g}" if isinstance(value, float) else str(value)))
    rows.append(("of the fluid bound", f"{result.utility / bound:.1%}" if bound else "-"))
    for name in ("outcomes", "drops", "settings"):
        rows.append((name, ", ".join(f"{k}: {v}" for k, v in getattr(result, name).items())))
    options.show(title, (), rows)
