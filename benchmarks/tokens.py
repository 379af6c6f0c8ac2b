"""`pliant bench tokens`: every bar of the tokens system, measured, printed and written as JSON.

Parts can be asked for by name. Without a champion in the registry the flow runs first, and without variants (which the
policy infaas switches between) theirs. Knows in which order parts run and what each is given; measures nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import shown, tokens_gpu, tokens_house, tokens_kernels, tokens_live, tokens_planner, tokens_policies
from benchmarks.results import Bar, exit_status, write
from benchmarks.tokens_endpoint import live_bundle, test_examples
from benchmarks.tokens_live_contenders import measure as measure_live
from benchmarks.tokens_live_figures import HEADINGS as LIVE_HEADINGS
from benchmarks.tokens_live_figures import live_figure, notes
from benchmarks.tokens_live_figures import rows as live_rows
from benchmarks.tokens_policies_figures import policies_figure
from benchmarks.tokens_replay import Stage
from flows import settings
from flows.tokens_publish import champion, open_registry
from flows.tokens_run import run_flow
from flows.tokens_stages import Bundle
from pliant.errors import InputError
from pliant.systems import tokens_knowledge
from registry.mlflow_store import CHAMPION
from serving.tokens_variants import VARIANT_PREFIX, load_variants

RESULTS = Path("benchmarks/results")

Found = tuple[list[Bar], dict[str, Any]]


def bench(full: bool, parts: Sequence[str] = ()) -> int:
    """Measure the parts (none named: all), print, write; 1 if a bar falls short."""
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        raise InputError("part", unknown[0], f"one of {', '.join(PARTS)}")
    told = settings.read()
    settings.prepare(told)
    if champion(told) is None:
        run_flow(None, {})
    if not open_registry(told).versions(VARIANT_PREFIX):
        run_flow(None, {}, variants=True)
    from flows.progress import stage

    bundle = live_bundle()
    bars: list[Bar] = []
    details: dict[str, Any] = {"device": bundle.profile.device}
    for part in parts or PARTS:
        Console().rule(part)
        found, details[part] = PARTS[part](bundle, full, stage)
        bars += found
    shown.bars(bars)
    name = "-".join(["tokens", *(p for p in PARTS if p in parts), *(["full"] if full else [])])
    Console().print(f"Written to {write(RESULTS, name, bars, details)}")
    return exit_status(bars)


def _planner(bundle: Bundle, full: bool, stage: Stage) -> Found:
    del bundle
    with stage("planner") as progress:
        found = tokens_planner.measure(quick=not full)
        progress(1, 1)
    shown.table("time per plan", tokens_planner.TIMING_HEAD, found.timing_rows())
    shown.table("what plans earn against each other", tokens_planner.GAP_HEAD, found.gap_rows())
    return found.bars(), found.plain()


def _policies(bundle: Bundle, full: bool, stage: Stage) -> Found:
    setting = tokens_policies.FULL if full else tokens_policies.QUICK
    variants = load_variants(open_registry(settings.read()), CHAMPION)
    grounds = tokens_policies.grounds(tokens_knowledge(bundle.profile, bundle.tasks), variants.knowledge())
    with stage("policies in the simulator") as progress:
        rows = tokens_policies.compare(setting, grounds, progress)
    for place in tokens_policies.places(rows):
        title = f"percent of the fluid bound: profile {place[0]}, {place[1]} workload"
        shown.table(title, tokens_policies.HEADINGS, tokens_policies.table(rows, place))
    shown.picture(policies_figure(rows), settings.read().home, "policies")
    return tokens_policies.bars(rows), {"rows": tokens_policies.plain(rows)}


def _live(bundle: Bundle, full: bool, stage: Stage) -> Found:
    found = measure_live(test_examples(bundle), tokens_live.FULL if full else tokens_live.QUICK, stage)
    shown.table("live, over HTTP", LIVE_HEADINGS, live_rows(found))
    for note in notes(found):
        Console().print(note)
    shown.picture(live_figure(found), settings.read().home, "live")
    return [found.bar()], found.plain()


def _kernels(bundle: Bundle, full: bool, stage: Stage) -> Found:
    with stage("kernels") as progress:
        found = tokens_kernels.measure(bundle.backbone, bundle.tasks, quick=not full, progress=progress)
    rows = [(f"{r.gamma:+d}", str(r.batch), f"{r.images_per_second:.0f}", f"{r.ratio:.2f}") for r in found.rows]
    shown.table("kernels", ("gamma", "batch", "images/s", "over plain timm"), rows)
    return found.bars(), found.plain()


def _gpu(bundle: Bundle, full: bool, stage: Stage) -> Found:
    del bundle, full
    with stage("kernels on the GPU, where there is one") as progress:
        found = tokens_gpu.bars()
        progress(1, 1)
    return found, {}


PARTS: Mapping[str, Callable[[Bundle, bool, Stage], Found]] = {
    "planner": _planner,
    "kernels": _kernels,
    "gpu": _gpu,
    "policies": _policies,
    "house": tokens_house.measure,
    "live": _live,
}
