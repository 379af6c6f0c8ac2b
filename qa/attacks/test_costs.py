"""What tenants, keys and limits cost where nobody attacks: schedulers and a service with them, and without, in turns.

Without: see tests/fixtures/costs.py. A round measures with, without, without, with, so that a drift of the machine's speed
hits both; a target is judged by the median of the rounds' ratios.
"""

from __future__ import annotations

import gc
import json
import re
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import pliant.bins.scheduler
import pliant.cascade.scheduler
import pliant.packing.scheduling.scheduler
import pliant.tokens.scheduler
from pliant.packing.scheduling import simulated
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import Memory, Prompt
from pliant.workload import poisson
from qa.targets import Targets, say
from serving.http.access.key_file import update_keys
from tests.fixtures import tenants
from tests.fixtures.bins import loads as bins
from tests.fixtures.bins.published import TEXT, MlflowPublisher, publish_tiny, settings_for
from tests.fixtures.cascade import loads as cascade
from tests.fixtures.costs import without_fairness, write_site
from tests.fixtures.live import running
from tests.fixtures.tokens import loads as tokens
from tests.serving.http.access.test_keys import with_new

LOAD = 0.8  # of what a device answers
SECONDS = {"tokens": 15.0, "bins": 3.0, "cascade": 1.5, "packing": 20.0}
ROUNDS = 30
REQUESTS, SERVICE_ROUNDS, WARM = 50, 40, 300
RULES, MEMORY = Rules("default", 256), Memory(400, 16, 0, 256, 32)
MODULES = {
    "tokens": pliant.tokens.scheduler,
    "bins": pliant.bins.scheduler,
    "cascade": pliant.cascade.scheduler,
    "packing": pliant.packing.scheduling.scheduler,
}

Steps = list[tuple[Any, float, Any]]
"""What a scheduler is given: events or inputs of steps, their times, and what it decides."""


def recorded(system: str) -> tuple[Callable[[], Any], Steps]:
    """Return what builds the scheduler, and Poisson arrivals of a single tenant as they were simulated with it."""
    rng, seconds, rate = np.random.default_rng(0), SECONDS[system], LOAD * tenants.CAPACITY[system]
    if system == "packing":
        return _recorded_packing(seconds, rate, rng)
    loads = {"tokens": tenants.tokens_load, "bins": tenants.bins_load, "cascade": tenants.cascade_load}
    simulate = {"tokens": tenants.run_tokens, "bins": tenants.run_bins, "cascade": tenants.run_cascade}
    schedulers = {
        "tokens": partial(tokens.scheduler, "default", 1, margin=0.15),
        "bins": lambda: bins.scheduler(bins.known("shared", 1, (1, 4))),
        "cascade": lambda: cascade.scheduler(cascade.known(1), 1, margin=0.15),
    }
    # Such a load is 17.2 tenths of the capacity that it is made for; here all of it is one tenant's.
    load = [replace(request, tenant="ann") for request in loads[system](0, seconds, rate * 10 / 17.2)]
    journal = simulate[system](load)
    return schedulers[system], [(entry.event, entry.now, list(entry.actions)) for entry in journal]


def _recorded_packing(seconds: float, rate: float, rng: np.random.Generator) -> tuple[Callable[[], Any], Steps]:
    prompts, lengths, steps = [], {}, []
    for i, at in enumerate(poisson(rate, seconds, rng)):
        lengths[i] = int(np.clip(rng.lognormal(3.3, 0.5), 4, 120))
        prompts.append(Prompt(i, float(at), int(rng.integers(10, 60)), 128, (float(lengths[i]),) * 8, tenant="ann"))
    simulated.simulate(
        prompts,
        lengths,
        RULES,
        MEMORY,
        tenants.COST,
        leaps=False,
        observe=lambda now, step_input, plan, _scheduler: steps.append((step_input, now, plan)),
    )
    return partial(pliant.packing.scheduling.scheduler.PackingScheduler, RULES, MEMORY), steps


def drive(scheduler: Any, steps: Steps) -> float:
    """Return the processor's seconds in which the scheduler takes all steps, and says when to wake it, as a driver asks."""
    handle, wake_at = scheduler.handle, getattr(scheduler, "wake_at", lambda: None)
    gc.collect()
    gc.disable()
    try:
        began = time.process_time()
        for event, now, _ in steps:
            handle(event, now)
            wake_at()
        return time.process_time() - began
    finally:
        gc.enable()


def built_without(module: ModuleType, build: Callable[[], Any]) -> Any:
    with without_fairness(module):
        return build()


def quartiles(ratios: Sequence[float]) -> str:
    return ", ".join(f"{ratio:.3f}" for ratio in np.quantile(ratios, [0.25, 0.5, 0.75]))


@pytest.mark.parametrize("system", SECONDS)
def test_a_scheduler_takes_as_many_events_a_second_with_tenants(system):
    build, steps = recorded(system)
    build_without = partial(built_without, MODULES[system], build)
    for scheduler in (build(), build_without()):  # the same decisions, so the same work
        assert all(scheduler.handle(event, now) == decided for event, now, decided in steps)
    ratios, seconds = [], []
    for _ in range(ROUNDS):
        turns = [drive(builder(), steps) for builder in (build, build_without, build_without, build)]
        ratios.append((turns[1] + turns[2]) / (turns[0] + turns[3]))
        seconds.append(turns[0] + turns[3])
    say(
        f"{system}: {len(steps)} steps of {1e6 * np.median(seconds) / 2 / len(steps):.2f} us; events a second over "
        f"without, quartiles of the rounds: {quartiles(ratios)}"
    )
    targets = Targets("costs")
    targets.at_least(f"events/s over without, {system}", float(np.median(ratios)), 0.95, "x")
    targets.check()


class Connection:
    """A connection to a service that is kept, and asks for a prediction after the other."""

    def __init__(self, url: str, key: str = "") -> None:
        host, port = url.removeprefix("http://").split(":")
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._key = key

    def ask(self, host: str = "localhost") -> tuple[int, float]:
        """Return the status of the answer and the seconds until it was here."""
        body = json.dumps({"inputs": TEXT}).encode()
        authorization = f"authorization: Bearer {self._key}\r\n" if self._key else ""
        head = f"POST /predict HTTP/1.1\r\nhost: {host}\r\n{authorization}content-type: application/json\r\n"
        request = f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
        began = time.perf_counter()
        self._socket.sendall(request)
        answer = b""
        while not _is_whole(answer):
            received = self._socket.recv(65_536)
            assert received, f"the connection was closed after {answer[:200]!r}"
            answer += received
        return int(answer.split(b" ", 2)[1]), time.perf_counter() - began

    def seconds(self, count: int) -> list[float]:
        """Return the seconds of each of `count` requests. Raises `AssertionError` unless all are answered."""
        answers = [self.ask() for _ in range(count)]
        assert {status for status, _ in answers} == {200}
        return [seconds for _, seconds in answers]


def _is_whole(answer: bytes) -> bool:
    head, end, body = answer.partition(b"\r\n\r\n")
    if not end:
        return False
    length = re.search(rb"content-length: *(\d+)", head.lower())
    assert length, f"an answer without a length: {head!r}"
    return len(body) >= int(length[1])


@pytest.fixture(scope="module")
def connections(tmp_path_factory):
    """Connections to a service without all of it, to one without keys, and to one with a key: three services at a time."""
    folder = tmp_path_factory.mktemp("costs")
    publish_tiny(MlflowPublisher(folder), "colours")
    key, _ = update_keys(folder / "keys.json", partial(with_new, tenant="ann"))
    homes = {name: folder / name for name in ("without", "no keys", "with keys")}
    for home in homes.values():
        home.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", write_site(folder / "site"))
        plain = running(settings_for(folder, home=homes["without"] / "home"), homes["without"])
        service = plain.__enter__()
    try:
        with (
            running(settings_for(folder, home=homes["no keys"] / "home"), homes["no keys"]) as keyless,
            running(
                settings_for(folder, home=homes["with keys"] / "home", keys_file=folder / "keys.json"),
                homes["with keys"],
            ) as keyed,
        ):
            yield {
                "without": Connection(service.url),
                "no keys": Connection(keyless.url),
                "with keys": Connection(keyed.url, key),
            }
    finally:
        plain.__exit__(None, None, None)


def test_a_request_takes_as_long_with_door_limits_and_keys(connections):
    statuses = {name: connection.ask("elsewhere.example")[0] for name, connection in connections.items()}
    assert statuses == {"without": 200, "no keys": 421, "with keys": 421}, "it is not switched off, or not on"
    for connection in connections.values():
        connection.seconds(WARM)
    order = [*connections, *reversed(connections)]
    ratios: dict[str, list[float]] = {"no keys": [], "with keys": []}
    usual: dict[str, list[float]] = {name: [] for name in connections}
    for _ in range(SERVICE_ROUNDS):
        seconds: dict[str, list[float]] = {name: [] for name in connections}
        for name in order:
            seconds[name] += connections[name].seconds(REQUESTS)
        p50 = {name: float(np.median(taken)) for name, taken in seconds.items()}
        for name, median in p50.items():
            usual[name].append(median)
        for name, rounds in ratios.items():
            rounds.append(p50[name] / p50["without"])
    targets = Targets("costs")
    say("p50 in ms: " + ", ".join(f"{name} {1e3 * np.median(medians):.3f}" for name, medians in usual.items()))
    for name, rounds in ratios.items():
        say(f"p50 over without, {name}, quartiles of the rounds: {quartiles(rounds)}")
        targets.at_most(f"p50 over without, {name}", float(np.median(rounds)), 1.05, "x")
    targets.check()
