"""The tokens half of `pliant demo`: one bursty load, replayed twice, with a table and a picture at the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich.console import Console

from pliant.benchmarks.demo.run import Comparison, keep
from pliant.benchmarks.tokens.replay import (
    ADAPTIVE,
    FIXED,
    HALVES,
    Options,
    ReplayConfig,
    Replayed,
    compare,
    live_bundle,
    test_examples,
)
from pliant.flows import settings
from pliant.flows.run import run_flow
from pliant.flows.settings import Settings
from pliant.flows.tokens.champions import load_champion
from pliant.flows.tokens.stages import Bundle
from pliant.tokens.points import FIRST_POINT, Point
from pliant.tokens.simulated import ReferenceConfig

# Few stretches, each long beside the deadlines: what waits when a loud one ends is then a small part of it. Every correct
# answer in time earns the same, so that utility is their number.
REFERENCE = ReferenceConfig(quiet=(0.5, 0.8), loud=(1.5, 2.0), seconds=2.0, urgent=(0.4, 1.0), patient=(0.8, 1.0))

OVERRIDES: Mapping[str, Any] = {
    "data": ("digits:digit", "digits:loops"),
    "measured": 120,
    "arithmetic": {"precision": "float32"},  # as what it is compared with
    "foundation": {
        # 145 tokens make a request's inference much heavier than its way over HTTP. In training seven of eight patches
        # are left out, so that many tokens cost no more there than few.
        "options": {"img_size": 24, "patch_size": 2, "embed_dim": 128, "depth": 4, "num_heads": 4},
        "images": 6_000,
        "batch": 32,
        "learning_rate": 2e-3,
        "patch_dropout": 0.87,
    },
    "task": {"gammas": (), "head_images": 400},  # prompts, which earn nothing here, would take as long as all the rest
    "latency": {
        "gammas": (-72, -36, 0),
        "batches": (1, 4, 16, 32),
        "timer": {"warmup": 1, "least": 3, "most": 5, "budget": 0.1},
    },
    "reference": asdict(REFERENCE),
}
"""The demo's sizes, laid over the flow's configuration: the whole way in seconds on one slow core."""

SHORT = ReplayConfig(probe=1.5, clients=128, reference=REFERENCE)


def champion(full: bool) -> Bundle:
    """Return the champion, trained first where there is none: in the demo's sizes, with `full` in the flow's."""
    if load_champion(settings.read()) is None:
        which = "the flow's" if full else "the demo's"
        Console().print(f"There is no champion yet: one of {which} sizes is trained first.")
        float32 = {"arithmetic": OVERRIDES["arithmetic"]}  # as its rivals
        run_flow("tokens", None, float32 if full else OVERRIDES)
    return live_bundle()


def demo(project: Settings, console: Console) -> Comparison:
    """Replay the load at gamma 0 and with adaptation, the scheduling being the same, print the table, name the picture."""
    # Imported late: Prefect reads its settings at import, and `with_prefect` prepares them.
    from pliant.flows.progress import stage

    options: Options = {FIXED: {"policy": "default", "gamma": 0}, ADAPTIVE: {"policy": "default"}}
    bundle = live_bundle()
    replayed = compare(options, test_examples(bundle), SHORT, stage)
    print_table(console, replayed, bundle.profile.points)
    ratios = {f"utility_ratio.{half}": replayed.ratio(loud) for half, loud in HALVES.items()}
    seen = {policy: replayed.compared.seen(policy) for policy in replayed.compared.turns}
    picture = keep(project, "tokens", seen, ratios, replayed.plain())
    console.print(f"\nThe picture of this run: {picture}")
    reason = "Where no point makes a batch much faster, or each costs many right answers, there is little to win."
    return Comparison("utility on the loud half, over the same scheduler at gamma 0", replayed.ratio(True), reason)


def print_table(console: Console, replayed: Replayed, points: Mapping[int, Point]) -> None:
    console.print(
        f"The endpoint serves {replayed.compared.bears:.0f} requests/s at gamma 0, which is the plain model; the load runs "
        f"from half to twice that, {len(replayed.load.requests)} requests. Numbers from {FIRST_POINT} on are operating "
        "points that were measured to pay on this machine. Utility is the number of right answers in time, each times what "
        "its request says it is worth. The loud half are the requests that came while the load was above what gamma 0 "
        "serves."
    )
    console.print(replayed.table())
    used = replayed.report(ADAPTIVE, None).settings
    for number in sorted(used.keys() & points.keys()):
        console.print(f"{number}: {points[number]}")
    ratios = f"{replayed.ratio(True):.2f}x on the loud half, {replayed.ratio(False):.2f}x on the quiet half"
    console.print(f"Adaptation earns [bold]{ratios}[/bold] of what the same scheduler earns at gamma 0.")
