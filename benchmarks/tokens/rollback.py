"""Two releases of tokens change places under load, as by `pliant rollback`: how soon the other answers, and what fails.

The champion has the demo's sizes, in a registry of the benchmark's own, and is kept between runs. The second release has the
same artifacts, registered once more: its answers are equal but for the version that they name.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from pliant.benchmarks.demo.story import own_environment
from pliant.benchmarks.demo.story_load import Clients, Mix, Said, Speech
from pliant.benchmarks.endpoint import serving
from pliant.benchmarks.harness import Context, Measured
from pliant.benchmarks.load_generator import IMAGES, Example, capacity
from pliant.benchmarks.results import Target
from pliant.benchmarks.tokens.demo import OVERRIDES
from pliant.benchmarks.tokens.replay import live_bundle, test_examples
from pliant.flows import settings
from pliant.flows.release import open_registry
from pliant.flows.run import run_flow
from pliant.flows.tokens.champions import load_champion
from pliant.progress import Progress
from pliant.registry import mlflow_switch
from pliant.registry.mlflow_store import MlflowRegistry
from pliant.registry.names import TOKENS_TASK

SYSTEM, TASK = "tokens", "digit"
SWITCHES, PAUSE = 5, 3.0  # seconds before each
SHARE, CLIENTS = 0.5, 32  # of the capacity, which so many clients find
DEADLINE = 10.0  # seconds of each request: so long that no request is refused as late
LIMIT = 60.0  # seconds within which a release must answer


def rollback(context: Context) -> Measured:
    """Switch back and forth, and judge the slowest switch."""
    home = settings.read().home / "bench" / "watch"
    with own_environment(home), context.stage("rollback under load") as progress:
        (home / "mlruns").mkdir(parents=True, exist_ok=True)
        project = settings.prepare()
        if load_champion(project) is None:
            run_flow("tokens", None, OVERRIDES)
        pool, registry = {TASK: test_examples(live_bundle())[TASK]}, open_registry(project, SYSTEM)
        with serving(SYSTEM, try_challengers=False) as address:
            rate = SHARE * asyncio.run(capacity(address, pool, 10.0 if context.full else 3.0, CLIENTS))
            mix = Mix("pictures", pool[TASK])
            clients = Clients(address, Speech(IMAGES.path, body, read), mix, rate, DEADLINE, time.monotonic())
            with clients.running():
                rows = _switch(registry, clients, progress)
    worst, name = max(r["seconds"] for r in rows), "rollback: until the next answer of the former version, worst"
    targets = [
        Target("rollback under load: failed requests", len(clients.failures), "<=", 0),
        Target(name, worst, "<=", 2.0, "s"),
    ]
    return targets, {"rate": rate, "sent": len(clients.answers), "switches": rows}


def _switch(registry: MlflowRegistry, clients: Clients, progress: Progress) -> list[dict[str, float]]:
    present = registry.release(SYSTEM)
    assert present is not None, "a champion was trained"
    begun = time.monotonic()
    second = registry.commit(again(registry)).number  # its models are loaded once, as an upgrade's are
    numbers, rows = (present.number, second), list[dict[str, float]]()
    _until_answered(registry, clients, second, begun)
    for turn in range(SWITCHES):
        time.sleep(PAUSE)
        to, begun = numbers[turn % 2], time.monotonic()
        mlflow_switch.switch(registry, SYSTEM, to, "the benchmark switches back and forth")
        command = time.monotonic() - begun
        rows.append({"release": to, "command": command, "seconds": _until_answered(registry, clients, to, begun)})
        progress(turn + 1, SWITCHES)
    return rows


def again(registry: MlflowRegistry) -> dict[str, int]:
    """Register the artifacts of the champion's tasks once more, and return model -> new version."""
    client, versions = registry.connect(), {}
    for name, number in registry.aliases(TOKENS_TASK).items():
        present = client.get_model_version(name, str(number))
        copy = client.create_model_version(name, present.source, run_id=present.run_id, tags=present.tags)
        versions[name] = int(copy.version)
    return versions


def _until_answered(registry: MlflowRegistry, clients: Clients, number: int, since: float) -> float:
    """Return the seconds from `since` to the first answer of a release; infinite if none comes within the limit."""
    release = registry.release(SYSTEM, number)
    assert release is not None, "it was written before"
    version = release.versions[f"{TOKENS_TASK}{TASK}"]
    while time.monotonic() < since + LIMIT:
        ended = [
            at for each in list(clients.answers) if each.version == version and (at := clients.time_of(each)) > since
        ]
        if ended:
            return min(ended) - since
        time.sleep(0.02)
    return float("inf")


def body(picture: Example, deadline: float) -> Mapping[str, Any]:
    """Return a request for one picture."""
    return {"image": picture.encoded, "task": TASK, "deadline": deadline}


def read(answer: Mapping[str, Any], picture: Example) -> Said:
    """Return what an answer says."""
    confidence = max(answer["probabilities"].values())
    return Said(int(answer["versions"]["task"]), answer["label"] == picture.label, confidence)
