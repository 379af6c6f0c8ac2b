"""`pliant bench tokens`: every target of the tokens system, measured, printed and written as JSON.

A part that only computes takes the champion where there is one, and else does without; a part that serves trains one where
there is none, in the quick setting of the demo's sizes. Knows what each part is given; measures nothing itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial

from rich.console import Console

from benchmarks import console, harness
from benchmarks.door import overload
from benchmarks.harness import Context, Measured, Part
from benchmarks.tokens import (
    buckets,
    devices,
    door,
    gpu,
    host,
    house,
    kernels,
    live,
    planner,
    policies,
    short_deadlines,
)
from benchmarks.tokens.demo import OVERRIDES
from benchmarks.tokens.endpoint import address, live_bundle, test_examples
from benchmarks.tokens.live_contenders import measure as measure_live
from benchmarks.tokens.live_figures import HEADINGS as LIVE_HEADINGS
from benchmarks.tokens.live_figures import live_figure, notes
from benchmarks.tokens.live_figures import rows as live_rows
from benchmarks.tokens.policies_figures import policies_figure
from flows import settings
from flows.run import run_flow
from flows.tokens.champions import load_champion
from flows.tokens.stages import Bundle
from pliant.tokens.knowledge import knowledge as tokens_knowledge

FULL = {"arithmetic": OVERRIDES["arithmetic"]}
"""Of the flow's configuration where the champion has its sizes: float32, as what it is compared with."""

TRAINING = 60.0  # seconds on the slow setting to train a champion of the demo's sizes


class Ground(Context):
    """What several parts need: the champion, trained at the first call for it where there is none."""

    def known(self) -> Bundle | None:
        """Return the champion, where there is one."""
        return load_champion(settings.read())

    def bundle(self) -> Bundle:
        if self.known() is None:
            which = "the flow's" if self.full else "the demo's"
            Console().print(f"There is no champion yet: one of {which} sizes is trained first.")
            run_flow("tokens", None, FULL if self.full else OVERRIDES)
        return live_bundle()


def _training(ground: Ground) -> float:
    return TRAINING if ground.known() is None else 0.0


def _planner(ground: Ground) -> Measured:
    with ground.stage("planner") as progress:
        timings = planner.measure(100 if ground.full else 10)
        progress(1, 1)
    console.table("time per plan", planner.HEADINGS, timings.table())
    return timings.targets(), timings.plain()


def _policies(ground: Ground) -> Measured:
    setting = ground.choose(policies.QUICK, policies.FULL, policies.SMALLEST)
    bundle = ground.bundle() if ground.full else None if ground.smallest else ground.known()
    measured = tokens_knowledge(bundle.profile, bundle.tasks) if bundle else None
    where = policies.grounds(measured)
    with ground.stage("policies in the simulator") as progress:
        rows = policies.compare(setting, where[:1] if ground.smallest else where, progress)
    for place in policies.places(rows):
        title = f"percent of the fluid bound: profile {place[0]}, {place[1]} workload"
        console.table(title, policies.HEADINGS, policies.table(rows, place))
    if measured is None and not ground.smallest:
        Console().print("Not compared: on a profile measured here, which needs a champion (pliant train tokens).")
    if not ground.smallest:
        console.picture(policies_figure(rows), settings.read().home, "policies")
    return policies.targets(rows), {"rows": policies.plain(rows)}


def _short(ground: Ground) -> Measured:
    with ground.stage("deadlines of 30 and 60 ms, simulated") as progress:
        rows = short_deadlines.measure(5 if ground.full else 1)
        progress(1, 1)
    console.table("an H200's table, 30/60 ms", short_deadlines.HEADINGS, [row.cells() for row in rows])
    return short_deadlines.targets(rows), {"rows": [asdict(row) for row in rows]}


def _house(ground: Ground) -> Measured:
    if ground.smallest:
        return house.light(ground.bundle(), ground.stage)
    return house.measure(ground.bundle(), ground.full, ground.stage)


def _live(ground: Ground) -> Measured:
    bundle = ground.bundle()
    result = measure_live(test_examples(bundle), live.FULL if ground.full else live.QUICK, ground.stage)
    console.table("live, over HTTP", LIVE_HEADINGS, live_rows(result))
    for note in notes(result):
        Console().print(note)
    console.picture(live_figure(result), settings.read().home, "live")
    return [result.target()], result.plain() | {"device": bundle.profile.device}


def _kernels(ground: Ground) -> Measured:
    bundle = ground.known()
    backbone, tasks = (bundle.backbone, bundle.tasks) if bundle else kernels.untrained()
    with ground.stage("kernels") as progress:
        result = kernels.measure(backbone, tasks, quick=not ground.full, progress=progress)
    console.table("kernels", kernels.HEADINGS, result.table())
    if ground.smallest:
        return result.targets(), result.plain()
    with ground.stage("latency table at every batch size") as progress:
        gammas = buckets.FULL if ground.full else buckets.QUICK
        errors = buckets.measure(backbone, tasks, gammas=gammas, progress=progress)
    console.table("error of the latency table, the worst of each bucket", buckets.HEADINGS, errors.table())
    details = {"backbone": backbone.source, "buckets": errors.plain()}
    return result.targets() + errors.targets(), result.plain() | details


def _devices(ground: Ground) -> Measured:
    with ground.stage("devices in the simulator") as progress:
        rows = devices.simulated(*ground.choose((5, 20.0), (5, 120.0), (2, 10.0)), progress)
    console.table("several devices, simulated", devices.HEADINGS, devices.table(rows))
    if ground.smallest:
        return [devices.simulated_target(rows)], {"simulated": [asdict(row) for row in rows]}
    bundle, judged = ground.bundle(), devices.cores() >= devices.CORES
    config = (devices.FULL if ground.full else devices.QUICK) if judged else devices.SHORT
    result = devices.live(address, test_examples(bundle), config, ground.stage)
    console.table("several devices, live", devices.HEADINGS, devices.table(result.rows))
    targets = [devices.simulated_target(rows)]
    if judged:
        targets.append(result.target())
    else:
        Console().print(
            f"Not judged: the live figure, {result.target().measured:.2f}x, which needs {devices.CORES} cores (two devices, "
            f"the service, the generator); here are {devices.cores()}."
        )
    live_details = result.plain() | {"cores": devices.cores(), "judged": judged}
    return targets, {"simulated": [asdict(row) for row in rows], "live": live_details}


def _host(ground: Ground) -> Measured:
    bundle = ground.bundle()
    with ground.stage("from HTTP to a device that computes nothing") as progress:
        rows = host.measure(bundle, 15.0 if ground.full else 4.0, 64, progress)
    console.table("what one service takes, its device computing nothing", host.HEADINGS, [row.cells() for row in rows])
    for row in rows:
        Console().print(f"{row.picture}: most of a request's time on the service's core goes into {row.limit}.")
    return [], {"rows": [row.plain() for row in rows], "cores": devices.cores()}


def _door(ground: Ground) -> Measured:
    bundle = ground.bundle()
    with ground.stage("pictures beyond what HTTP carries") as progress:
        result = door.measure(bundle, *((8.0, 5) if ground.full else (3.0, 3)), progress)
    console.table("a service whose device computes nothing", overload.HEADINGS, result.table())
    return result.targets("pictures"), result.plain()


def _gpu(ground: Ground) -> Measured:
    with ground.stage("kernels on the GPU, where there is one") as progress:
        targets = gpu.targets()
        progress(1, 1)
    return targets, {}


PARTS: Mapping[str, Part] = {
    "planner": Part(_planner, 5.0),
    "kernels": Part(_kernels, 140.0),
    "gpu": Part(_gpu, 5.0),
    "policies": Part(_policies, 180.0),
    "short": Part(_short, 30.0),
    "devices": Part(_devices, 75.0, _training),
    "host": Part(_host, 35.0, _training),
    "door": Part(_door, 120.0, _training),
    "house": Part(_house, 200.0, _training),
    "live": Part(_live, 300.0, _training),
}

bench = partial(harness.run, "tokens", PARTS, make=Ground)
