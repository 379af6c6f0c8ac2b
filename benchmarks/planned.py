"""`pliant plan` against live runs: what clients saw of five loads, and what is simulated of the same requests.

A service of one device keeps a journal. What came by it is simulated as `pliant plan --load journal:FILE` does, whose
launches take what the journal's took. The client's times hold HTTP as well: the plan's `--http` is what the service counted
of its event loop, its `--overhead` what some requests took one by one beyond that and what the journal says of them.
"""

from __future__ import annotations

import asyncio
import time
import urllib.request
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from pliant import systems
from pliant.benchmarks.endpoint import serving
from pliant.benchmarks.harness import Context, Measured
from pliant.benchmarks.load_generator import Form, capacity, in_turns, replay, warm
from pliant.benchmarks.results import Target
from pliant.cli.journal import opened
from pliant.cli.plan import as_served, fares, took
from pliant.flows import settings
from pliant.protocol import Request
from pliant.report import observations, summarise
from pliant.serving.metrics import LOOK_SECONDS
from pliant.workload import RequestKind, poisson, requests

SHARES = (0.3, 0.5, 0.7, 0.9, 1.1)  # of what the endpoint bears
PROBE, CLIENTS, WARM = 3.0, 32, 40
PAUSE = 3.0  # seconds between two loads, which tell them apart in the journal
LIMITS = {"p50": 0.1, "earned": 0.1, "p99": 0.2}


def against_live(
    context: Context,
    system: str,
    form: Form,
    pool: Mapping[str, Sequence[Any]],
    deadlines: Sequence[float],
    policy: str,
) -> Measured:
    """Return targets and a row a load. `deadlines`: seconds, of requests in turn; `policy`: cascade's candidate."""
    seconds = context.choose(8.0, 30.0, 3.0)
    kinds = [RequestKind(task, deadline, 1.0) for task in pool for deadline in deadlines]
    project, live = settings.prepare(), []
    with TemporaryDirectory() as folder:
        path = Path(folder) / "journal.jsonl"
        with (
            serving(system, journal=path, refresh_seconds=0.0) as url,
            context.stage(f"{system}: five loads") as progress,
        ):
            warm(url, pool, WARM, form)  # until the runtime is warm, too
            time.sleep(LOOK_SECONDS + PAUSE)
            before = loop_seconds(url)
            alone = [Request(i, 0.0, deadlines[0], task) for i, task in zip(range(WARM), cycle(pool), strict=False)]
            (replies,) = asyncio.run(in_turns([url], alone, pool, form=form))
            time.sleep(PAUSE)
            borne = asyncio.run(capacity(url, pool, PROBE, CLIENTS, form))
            for number, share in enumerate(SHARES):
                time.sleep(PAUSE)
                rng = np.random.default_rng(number)
                arriving = requests(poisson(share * borne, seconds, rng), kinds, rng)
                live.append(asyncio.run(replay(url, arriving, pool, number, form=form)))
                progress(number + 1, len(SHARES))
            time.sleep(LOOK_SECONDS + 1)
            used = loop_seconds(url) - before
        (simulation,) = systems.system(system).part("cli", "simulate").simulations(project, f"journal:{path}", policy)
        launches, said = took(simulation, f"journal:{path}", simulation.device)
        came, _ = simulation.draw(0)
        parts = apart(came)
        http = used / sum(map(len, parts[1:]))
        ended = {each.request.id: each.answered or np.inf for each in observations(opened(path, system)[1]())}
        inside = median(ended[each.id] - each.arrival for each in parts[1])
        overhead = median(each.seconds for each in replies) - inside - http
        _, play = as_served(simulation, max(overhead, 0.0), http, launches).draw(0)
    rows, known = [], system in ("tokens", "cascade")  # whose simulations know which answers are right
    for share, replies, part in zip(SHARES, live, parts[-len(SHARES) :], strict=True):
        seen, simulated = summarise(reply.observation for reply in replies), fares([(part, play)], 1, 1.0, None)
        row = {"share": share, "requests": len(replies), "in journal": len(part), "p50": seen.p50, "p99": seen.p99}
        row |= {"earned": seen.utility / seen.offered if known else seen.attainment}
        row |= {f"simulated {name}": simulated[name] for name in ("p50", "p99")}
        row["simulated earned"] = simulated["utility" if known else "attainment"]
        row["sent late p99"] = float(np.quantile([reply.sent_late for reply in replies], 0.99))
        rows.append(row)
    targets = []
    for name, limit in LIMITS.items():
        worst = max(abs(row[f"simulated {name}"] / max(row[name], 1e-9) - 1) for row in rows)
        targets.append(Target(f"plan, {system}: {name} simulated over live, worst of five loads", worst, "<=", limit))
    facts = {"borne": borne, "http": http, "overhead": overhead, "said": [*said], "device": simulation.device}
    return targets, {"loads": rows, **facts}


def loop_seconds(url: str) -> float:
    """Return the seconds of the processor that a service's event loop has had."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("pliant_loop_seconds"))


def apart(came: Sequence[Any]) -> list[list[Any]]:
    """Return what came, in lists between which nothing came for most of a `PAUSE`."""
    parts, last = list[list[Any]](), -np.inf
    for request in sorted(came, key=lambda request: request.arrival):
        if request.arrival - last > 0.7 * PAUSE:
            parts.append([])
        parts[-1].append(request)
        last = request.arrival
    return parts
