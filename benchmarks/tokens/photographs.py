"""Operating points of a really pretrained ViT-S on real pictures: what they keep and save, and what they earn over HTTP.

The net is DINOv2's ViT-S/14 at 196 pixels (197 tokens), whose file the variable PLIANT_DINOV2 names; CIFAR-10 and EuroSAT
(32 and 64 pixels, the largest pictures that can be had) are its tasks. The flow fits heads, tries prompts and profiles this
machine, in a registry of the benchmark's own. Live the load is Poisson at four times what gamma 0 serves, half of the
requests worth 1 and half 0.3, so that even the fastest setting cannot answer all. Rivals are OTAS and SlackFit, gamma 0, and
of fixed merging and fixed points each the one that earns most in the simulator; all run on our service.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from pliant.benchmarks import places, released
from pliant.benchmarks.contenders import send
from pliant.benchmarks.endpoint import serving
from pliant.benchmarks.harness import Context, Measured, Stage, need
from pliant.benchmarks.load_generator import Example, capacity, examples, warm
from pliant.benchmarks.results import Target
from pliant.flows import settings
from pliant.flows.tokens.champions import load_champion
from pliant.flows.tokens.config import read
from pliant.flows.tokens.stages import Bundle, load_data
from pliant.protocol import Request
from pliant.report import report, summarise
from pliant.simulator import simulate
from pliant.tokens.points import CLASS
from pliant.tokens.policies import make
from pliant.tokens.scheduler import Options, knowledge
from pliant.tokens.simulated import SimulatedDevice
from pliant.workload import RequestKind, poisson, requests

VIT = "PLIANT_DINOV2"
DATA = {"cifar10": "cifar10_train", "eurosat": "eurosat_train"}
PICTURES = 2500  # of a task: a fifth tests, a fifth is for planning, the rest trains
SHARE, KINDS = 4.0, ((1.0, 1.0), (1.5, 0.3))  # of the capacity at gamma 0; seconds to the deadline, and utility
DEFAULT, MARGIN = "default", 0.15
LOST = 0.01  # of a task's accuracy, at most


def photographs(context: Context) -> Measured:
    """Train where that was not done yet (some 20 minutes of two cores), compare points, and measure live."""
    vit = os.environ.get(VIT, "")
    files = {name: places.SHARED / "images" / f"{file}.parquet" for name, file in DATA.items()}
    lacking = "" if vit else f"needs DINOv2's ViT-S: make it by shared/tools/make_real_models.py; {VIT} names its file"
    need(lacking or places.missing(*files.values()))
    project, overrides = released.registry("bench-tokens-photographs"), flow_settings(vit, files)
    with context.stage("heads, prompts and profile"):
        released.run_flow(project, "tokens", overrides)
    bundle = load_champion(project)
    assert bundle is not None, "the flow has just released it"
    limits, rows = offline(bundle)
    pool = {
        data.name: examples(data, [int(row) for row in data.split.test])
        for data in load_data(read(overrides=overrides))
    }
    live, loads = at_four_times(project, bundle, pool, context.choose(4.0, 10.0, 1.0), context.stage)
    return [*limits, *live], {"settings": rows, "loads": loads}


def flow_settings(vit: str, files: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flow's settings: few pictures, which a laptop reads in minutes."""
    return {
        "data": [f"{name}=parquet:{file}" for name, file in files.items()],
        "limit": PICTURES,
        "backbone": f"file:vit_small_patch14_dinov2:{vit}",
        "image_size": 196,
        "task": {"gammas": (8,), "epochs": 1.0, "prompt_rate": 0.01, "augment": "none"},
        "arithmetic": {"precision": "float32"},
        "latency": {"gammas": (-20, -15, -10, -5, 0), "batches": (1, 2, 4, 8, 16), "timer": {"least": 3, "most": 5}},
        "gate": {"seeds": 1},
    }


def offline(bundle: Bundle) -> tuple[list[Target], list[dict[str, Any]]]:
    """Return what settings keep and save. What loses at most a point of each task is chosen by the profiling split."""
    table, points = bundle.profile.latency, bundle.profile.points
    batch = table.batches[-1]
    speed = {setting: table.at(0, batch) / table.at(setting, batch) for setting in table.settings}
    kept = [s for s in points if all(task.accuracy[s] >= task.accuracy[0] - LOST for task in bundle.tasks)]
    best = max(kept, key=lambda s: speed[s], default=0)
    merged = next(number for number, p in bundle.tasks[0].points.items() if p.merges and p.reads == CLASS)
    shares = [share for task in bundle.tasks for share in (task.accuracy, task.test_accuracy)]
    held = [share[merged] - share[-10] for share in shares]
    rows = [
        {"setting": s, "point": str(points.get(s, "")), "speed": speed[s]}
        | {task.name: task.test_accuracy[s] for task in bundle.tasks}
        for s in table.settings
    ]
    rows.append(
        {"setting": merged, "point": f"{bundle.tasks[0].points[merged]}, not offered"}
        | {task.name: task.test_accuracy[merged] for task in bundle.tasks}
    )
    above = [s for s in table.settings if 0 < s < min(points, default=101)]
    slowest = max((table.at(s, b) / table.at(0, b) for s in points for b in (1, 8)), default=1.0)
    return [
        Target(f"at most 1 point lost: images/s over gamma 0 ({points.get(best, 'gamma 0')})", speed[best], ">=", 2.0),
        Target("merging in four blocks at 0.68 of the arithmetic: accuracy less gamma -10's", min(held), ">=", -0.01),
        Target("the same, mean of all held-out pictures", fmean(held), ">=", -0.01),
        Target("slowest point offered, batches of 1 and 8: seconds over gamma 0", slowest, "<=", 1.03, "x"),
        Target("prompts offered though their gain's interval reaches 0", float(len(above)), "<=", 0.0),
    ], rows


def at_four_times(
    project: settings.Settings, bundle: Bundle, pool: Mapping[str, Sequence[Example]], seconds: float, stage: Stage
) -> tuple[list[Target], list[dict[str, Any]]]:
    """Return the utility that each contender earns of three loads, as a share of what is offered."""

    def load(rate: float, seed: int) -> list[Request]:
        rng, kinds = np.random.default_rng(seed), [RequestKind(task, *kind) for task in pool for kind in KINDS]
        return requests(poisson(rate, seconds, rng), kinds, rng)

    with stage("capacity at gamma 0") as progress, serving("tokens", project=project, gamma=0) as url:
        warm(url, pool, 20, deadline=20.0)
        served = asyncio.run(capacity(url, pool, 5.0, 64))
        progress(1, 1)
    settings_of = bundle.profile.latency.settings
    fixed = {
        name: best_fixed(bundle, [s for s in settings_of if (s < 0, s in bundle.profile.points)[kind]], load)
        for kind, name in enumerate(("fixed merging", "fixed point"))
    }
    options: dict[str, dict[str, Any]] = {name: {"policy": name} for name in (DEFAULT, "otas", "otas-at-once")}
    options |= {"slackfit": {"policy": "slackfit"}, "gamma 0": {"gamma": 0}}
    options |= {f"{name} {setting}": {"gamma": setting} for name, setting in fixed.items()}
    rows = list[dict[str, Any]]()
    for name, own in options.items():
        with stage(name) as progress, serving("tokens", project=project, **own) as url:
            warm(url, pool, 20, deadline=20.0)
            for seed in range(3):
                turn = send(url, load(SHARE * served, seed), pool, seed)
                seen = summarise(reply.observation for reply in turn.replies)
                figures = {what: getattr(seen, what) for what in ("attainment", "accuracy", "p99")}
                share = seen.utility / seen.offered
                rows.append({"name": name, "seed": seed, "utility": share, **figures, **turn.figures()})
                progress(seed + 1, 3)
    mean = {name: float(np.mean([row["utility"] for row in rows if row["name"] == name])) for name in options}
    otas = max(mean["otas"], mean["otas-at-once"])
    points = max(share for name, share in mean.items() if name == "gamma 0" or name.startswith("fixed"))
    return [
        Target("live at 4x, utility over the better OTAS", mean[DEFAULT] / otas, ">=", 1.25, "x"),
        Target("live at 4x, utility over the best fixed setting", mean[DEFAULT] / points, ">=", 1.15, "x"),
    ], rows


def best_fixed(bundle: Bundle, candidates: Sequence[int], load: Any) -> int:
    """Return which of these settings earns most, alone and with our scheduling, in virtual time."""
    known, batch = knowledge(bundle.profile, bundle.tasks), bundle.profile.latency.batches[-1]
    coming = load(SHARE * known.latency.throughput(0, batch), 0)

    def earned(setting: int) -> float:
        device = SimulatedDevice(known.latency, known.accuracy, coming, np.random.default_rng(0))
        scheduler = make(DEFAULT, known, 1, setting, Options(margin=MARGIN))
        return report(simulate(scheduler, coming, device)).utility

    return max(candidates, key=earned)
