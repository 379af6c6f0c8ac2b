"""`pliant bench tokens`: every target of the tokens system, measured, printed and written as JSON.

Parts can be asked for by name; without names the quick setting leaves out what this machine has no time for. A part that
only computes takes the champion where there is one, and else does without; a part that serves trains one where there is
none, in the quick setting of the demo's sizes. Knows in which order parts run and what each is given; measures nothing
itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import console
from benchmarks.budget import begin
from benchmarks.results import Target, write
from benchmarks.tokens import gpu, house, kernels, live, planner, policies
from benchmarks.tokens.demo import OVERRIDES
from benchmarks.tokens.endpoint import live_bundle, test_examples
from benchmarks.tokens.live_contenders import measure as measure_live
from benchmarks.tokens.live_figures import HEADINGS as LIVE_HEADINGS
from benchmarks.tokens.live_figures import live_figure, notes
from benchmarks.tokens.live_figures import rows as live_rows
from benchmarks.tokens.policies_figures import policies_figure
from benchmarks.tokens.replay import Stage
from flows import settings
from flows.tokens.publish import champion, open_registry
from flows.tokens.run import run_flow
from flows.tokens.stages import Bundle
from pliant.errors import InputError
from pliant.tokens.knowledge import knowledge as tokens_knowledge
from registry.mlflow_store import CHAMPION
from registry.names import TOKENS_VARIANT
from serving.tokens.variants import load_variants

RESULTS = Path("benchmarks/results")

Found = tuple[list[Target], dict[str, Any]]


class Ground:
    """What several parts need: the champion, trained at the first call for it where there is none."""

    def __init__(self, full: bool, stage: Stage) -> None:
        self.full, self.stage = full, stage

    def known(self) -> Bundle | None:
        """The champion, where there is one."""
        return champion(settings.read())

    def bundle(self) -> Bundle:
        if self.known() is None:
            which = "the flow's" if self.full else "the demo's"
            Console().print(f"There is no champion yet: one of {which} sizes is trained first.")
            run_flow(None, {} if self.full else OVERRIDES)
        return live_bundle()

    def has_variants(self) -> bool:
        return bool(open_registry(settings.read()).versions(TOKENS_VARIANT)) if self.known() else False

    def variants(self) -> bool:
        """Whether there are models of other sizes to compare with; the full setting trains them where there are none."""
        if self.has_variants() or not self.full:
            return self.has_variants()
        run_flow(None, {}, variants=True)
        return True


def bench(full: bool, parts: Sequence[str] = ()) -> int:
    """Measure the parts (none named: all that there is time for), print, write; the exit status is that of the budget."""
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        raise InputError("part", unknown[0], f"one of {', '.join(PARTS)}")
    settings.prepare(settings.read())
    from flows.progress import stage

    ground, budget = Ground(full, stage), begin("tokens", full, parts)
    targets: list[Target] = []
    details: dict[str, Any] = {}
    for part in parts or PARTS:
        Console().rule(part)
        if not budget.allows(part, *_seconds(part, ground)):
            continue
        found, details[part] = PARTS[part](ground)
        targets += found
    console.targets(targets)
    bundle = ground.known()
    details |= {"device": bundle.profile.device if bundle else None, "left out": budget.left_out}
    name = "-".join(["tokens", *(p for p in PARTS if p in parts), *(["full"] if full else [])])
    Console().print(f"Written to {write(RESULTS, name, targets, details)}")
    return budget.status(targets)


SECONDS = {"planner": 5.0, "kernels": 50.0, "gpu": 5.0, "policies": 180.0, "house": 240.0, "live": 300.0}
TRAINING = 60.0  # of a champion of the demo's sizes
"""Seconds of the quick setting on the machine of the slow setting."""


def _seconds(part: str, ground: Ground) -> tuple[float, float]:
    """Seconds of a part, and of what is trained for it first."""
    return SECONDS[part], TRAINING if part in ("house", "live") and ground.known() is None else 0.0


def _planner(ground: Ground) -> Found:
    with ground.stage("planner") as progress:
        found = planner.measure(quick=not ground.full)
        progress(1, 1)
    console.table("time per plan", planner.TIMING_HEAD, found.timing_rows())
    console.table("what plans earn against each other", planner.GAP_HEAD, found.gap_rows())
    return found.targets(), found.plain()


def _policies(ground: Ground) -> Found:
    setting = policies.FULL if ground.full else policies.QUICK
    bundle = ground.bundle() if ground.full else ground.known()
    measured = tokens_knowledge(bundle.profile, bundle.tasks) if bundle else None
    variants = load_variants(open_registry(settings.read()), CHAMPION).knowledge() if ground.variants() else None
    with ground.stage("policies in the simulator") as progress:
        rows = policies.compare(setting, policies.grounds(measured, variants), progress)
    for place in policies.places(rows):
        title = f"percent of the fluid bound: profile {place[0]}, {place[1]} workload"
        console.table(title, policies.HEADINGS, policies.table(rows, place))
    for lacking, what, command in (
        (measured is None, "on a profile measured here, which needs a champion", "pliant train tokens"),
        (variants is None, "infaas on it, which needs models of other sizes", "pliant train tokens --variants"),
    ):
        if lacking:
            Console().print(f"Not compared: {what} ({command}).")
    console.picture(policies_figure(rows), settings.read().home, "policies")
    return policies.targets(rows), {"rows": policies.plain(rows)}


def _house(ground: Ground) -> Found:
    return house.measure(ground.bundle(), ground.full, ground.stage)


def _live(ground: Ground) -> Found:
    bundle = ground.bundle()
    if not ground.variants():
        Console().print("Not compared: infaas, which needs models of other sizes (pliant train tokens --variants).")
    found = measure_live(test_examples(bundle), live.FULL if ground.full else live.QUICK, ground.stage)
    console.table("live, over HTTP", LIVE_HEADINGS, live_rows(found))
    for note in notes(found):
        Console().print(note)
    console.picture(live_figure(found), settings.read().home, "live")
    return [found.bar()], found.plain()


def _kernels(ground: Ground) -> Found:
    bundle = ground.known()
    backbone, tasks = (bundle.backbone, bundle.tasks) if bundle else kernels.untrained()
    with ground.stage("kernels") as progress:
        found = kernels.measure(backbone, tasks, quick=not ground.full, progress=progress)
    rows = [(f"{r.gamma:+d}", str(r.batch), f"{r.images_per_second:.0f}", f"{r.ratio:.2f}") for r in found.rows]
    console.table("kernels", ("gamma", "batch", "images/s", "over plain timm"), rows)
    return found.targets(), found.plain() | {"backbone": backbone.source}


def _gpu(ground: Ground) -> Found:
    with ground.stage("kernels on the GPU, where there is one") as progress:
        found = gpu.targets()
        progress(1, 1)
    return found, {}


PARTS: Mapping[str, Callable[[Ground], Found]] = {
    "planner": _planner,
    "kernels": _kernels,
    "gpu": _gpu,
    "policies": _policies,
    "house": _house,
    "live": _live,
}
