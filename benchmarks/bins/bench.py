"""`pliant bench bins`: every target of the bins system, measured, printed and written as JSON.

Parts can be asked for by name; without names the quick setting leaves out what this machine has no time for. No part trains
anything: those that serve compile and measure a published encoder, or take the champion where there is one. Knows in which
order parts run and what each is given; measures nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import bad_input, console
from benchmarks.bins import (
    batches,
    contest,
    dispatch,
    fidelity,
    live,
    live_contenders,
    nodes,
    planner,
    scaling,
    streams,
)
from benchmarks.bins import input as bins_input
from benchmarks.bins.minilm import own_registry
from benchmarks.budget import begin
from benchmarks.results import Target, write
from flows import settings
from pliant.errors import InputError, PliantError, RegistryError

RESULTS = Path("benchmarks/results")

SECONDS: Mapping[str, float] = {
    "planner": 40.0,
    "dispatch": 45.0,
    "contest": 240.0,
    "scaling": 50.0,
    "batches": 35.0,
    "streams": 50.0,
    "live": 150.0,
    "fidelity": 90.0,
    "nodes": 120.0,
    "input": 30.0,
    "gpu": 1.0,
}
"""Seconds of each part's quick setting on the machine of the slow setting; of "live" and "fidelity" with PREPARED done."""
PREPARED = 90.0  # seconds there to compile and measure the published encoder, once

Found = tuple[list[Target], dict[str, Any]]


def bench(full: bool, parts: Sequence[str] = ()) -> int:
    """Measure the parts (none named: all that there is time for), print, write; the exit status is that of the budget."""
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        raise InputError("part", unknown[0], f"one of {', '.join(PARTS)}")
    settings.prepare(settings.read())
    from flows.progress import stage

    targets: list[Target] = []
    budget = begin("bins", full, parts)
    for name in parts or PARTS:
        Console().rule(name)
        try:
            if not budget.allows(name, _seconds(name, full)):
                continue
            found, details = PARTS[name](full, stage)
        except Skipped as reason:
            budget.leave_out(name, str(reason))
            continue
        targets += found
        if found:
            console.targets(found)
        write(RESULTS, f"bins-{name}", found, details | {"setting": "full" if full else "quick"})
    Console().rule("all targets")
    console.targets(targets)
    return budget.status(targets)


class Skipped(PliantError):  # noqa: N818
    """A part cannot be measured here; says what is missing."""


def _seconds(part: str, _full: bool) -> float:
    prepared = part not in ("live", "fidelity") or own_registry(settings.read()).artifact_root.is_dir()
    return SECONDS[part] + (0.0 if prepared else PREPARED)


def _planner(full: bool, stage: Any) -> Found:
    with stage("allocation, exact") as progress:
        found = planner.measure(progress, 20 if full else 6)
    console.table("published programme, one core", planner.HEAD, found.table())
    return found.targets(), found.plain()


def _dispatch(_full: bool, stage: Any) -> Found:
    _traces()
    with stage("dispatch") as progress:
        found = dispatch.measure(progress)
    console.table("decisions a second", dispatch.HEAD, found.table())
    return found.targets(), found.plain()


def _contest(full: bool, stage: Any) -> Found:
    _traces()
    with stage("simulations of all schemes") as progress:
        found = contest.measure(full, progress)
    console.table("mean latency over the published pair's (worst seed)", contest.HEADINGS, found.table())
    console.table(
        "the published order: the pair below each rival, ten devices, 1,000 requests/s of BERT-base",
        contest.ORDER_HEADINGS,
        found.order(),
    )
    console.picture(contest.figure(found), RESULTS, "bins-contest")
    return found.targets(), found.plain()


def _scaling(full: bool, stage: Any) -> Found:
    _traces()
    with stage("autoscaling") as progress:
        found = scaling.measure(scaling.FULL if full else scaling.QUICK, progress)
    console.table("autoscaling, one rule for all", scaling.HEAD, found.table())
    return [], found.plain()


def _batches(full: bool, stage: Any) -> Found:
    _traces()
    with stage("batches by load") as progress:
        found = batches.measure(batches.FULL if full else batches.QUICK, progress)
    console.table(f"batches by load, {found.profile}", batches.HEAD, found.table())
    return [], found.plain()


def _streams(full: bool, stage: Any) -> Found:
    _traces()
    with stage("streams on one pool") as progress:
        found = streams.measure(streams.FULL if full else streams.QUICK, progress)
    console.table("two streams on one pool", streams.HEAD, found.table())
    return [], found.plain()


def _live(full: bool, stage: Any) -> Found:
    _model()
    found = live_contenders.measure(live.FULL if full else live.QUICK, stage)
    console.table("over HTTP, tweets' lengths, all-MiniLM-L6-v2", live.HEADINGS, found.table())
    for name, why in found.missing.items():
        Console().print(f"Not compared: {name}, {why}.")
    return found.targets(), found.plain()


def _fidelity(full: bool, stage: Any) -> Found:
    _model()
    found = fidelity.measure(fidelity.FULL if full else fidelity.QUICK, stage)
    console.table("the same trace live and simulated", fidelity.HEADINGS, found.table())
    return found.targets(), found.plain()


def _nodes(_full: bool, stage: Any) -> Found:
    if missing := nodes.missing():
        raise Skipped(missing)
    with stage("a node lost under load") as progress:
        found = nodes.measure(progress)
    console.table("node loss", nodes.HEAD, found.table())
    return found.targets(), found.plain()


def _input(_full: bool, stage: Any) -> Found:
    try:
        bins_input.live_stream(settings.read())
    except RegistryError as error:
        raise Skipped(f"needs a champion: pliant train bins ({error})") from None
    with stage("bad input against a real endpoint") as progress:
        found = bins_input.measure(progress)
    console.table("bad input", bad_input.HEADINGS, [one.row() for one in found])
    return [bad_input.bar(found)], {"cases": [asdict(one) for one in found]}


def _gpu(_full: bool, _stage: Any) -> Found:
    from benchmarks.bins import gpu

    if missing := gpu.missing():
        raise Skipped(missing)
    return gpu.found()


def _traces() -> None:
    if missing := contest.missing():
        raise Skipped(missing)


def _model() -> None:
    if missing := live_contenders.missing():
        raise Skipped(missing)


PARTS: Mapping[str, Callable[[bool, Any], Found]] = {
    "planner": _planner,
    "dispatch": _dispatch,
    "contest": _contest,
    "scaling": _scaling,
    "batches": _batches,
    "streams": _streams,
    "live": _live,
    "fidelity": _fidelity,
    "nodes": _nodes,
    "input": _input,
    "gpu": _gpu,
}
