"""`pliant bench packing`: every target of the packing system, measured or simulated (each says which), written as JSON.

Parts can be asked for by name. Where none is named, the quick setting leaves out what it has no time for on this processor
(benchmarks/budget.py), and says so. What several parts forecast by is trained in a part of its own (forecasts): those that
only compute train nothing. Knows in which order parts run and what each is given; measures nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import console
from benchmarks.budget import begin
from benchmarks.packing import contest, engine, forecasts, load, predictor, published, study, vicuna
from benchmarks.packing import input as packing_input
from benchmarks.packing.vicuna import WAY, encoder
from benchmarks.results import Target, write
from flows import settings
from pliant.errors import InputError, PliantError, RegistryError

RESULTS = Path("benchmarks/results")
SHARES = (0.8, 1.2)  # of what the profile says that the device bears, over HTTP

SLOW_SECONDS: Mapping[str, tuple[float, float]] = {
    "forecasts": (5.0, 60.0),
    "study": (105.0, 0.0),
    "published": (30.0, 0.0),
    "predictor": (60.0, 95.0),
    "engine": (100.0, 600.0),
    "load": (220.0, 0.0),
    "input": (60.0, 0.0),
}
"""Seconds of each quick part on the slow setting, and of matrix products alone; "engine" and "load" are guesses."""

Found = tuple[list[Target], dict[str, Any]]


def bench(full: bool, parts: Sequence[str] = ()) -> int:
    """Measure the parts (none named: all that there is time for), print, write; the exit status is that of the budget."""
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        raise InputError("part", unknown[0], f"one of {', '.join(PARTS)}")
    settings.prepare(settings.read())
    from flows.progress import stage

    targets: list[Target] = []
    budget = begin("packing", full, parts)
    for name in parts or PARTS:
        Console().rule(name)
        if not budget.allows(name, *SLOW_SECONDS[name]):
            continue
        try:
            found, details = PARTS[name](full, stage)
        except Skipped as reason:
            budget.leave_out(name, str(reason))
            continue
        targets += found
        if found:
            console.targets(found)
        if details:
            write(RESULTS, f"packing-{name}", found, details | {"setting": "full" if full else "quick"})
    Console().rule("all targets")
    console.targets(targets)
    return budget.status(targets)


class Skipped(PliantError):  # noqa: N818
    """A part cannot be measured here; says what is missing."""


def _forecasts(_full: bool, stage: Any) -> Found:
    _need(contest.missing())
    with stage("predictor for Vicuna's lengths") as progress:
        contest.prepare(settings.read().home, encoder, WAY, progress)
    return [], {}


def _study(full: bool, stage: Any) -> Found:
    _need(contest.missing() or _no_forecasts())
    config = contest.FULL if full else contest.QUICK
    with stage("simulations of all policies") as progress:
        found = contest.measure(config, settings.read().home, encoder, WAY, progress)
    console.table("predictors, on rows that they were not fitted on", forecasts.HEADINGS, found.qualities())
    for name, rows in found.sections.items():
        console.table(f"{name}: {rows[0].load}", study.HEADINGS, found.table(name))
    console.table("the default against the others, worst seed (simulated)", contest.VERDICTS, found.verdicts())
    return found.targets(), found.plain()


def _published(full: bool, stage: Any) -> Found:
    _need(published.missing())
    with stage("the published tables, simulated") as progress:
        found = published.measure(full, progress)
    console.table("S3's Table 2: mean batch on an A100", published.HEADINGS, found.table())
    console.table("GPT-3 in a pipeline", published.PIPELINE_HEADINGS, found.stages())
    if found.variants:
        console.table("one assumption changed", published.VARIANT_HEADINGS, found.changes())
    return found.targets(), found.plain()


def _predictor(full: bool, stage: Any) -> Found:
    with stage("predictors, trained and judged") as progress:
        found = predictor.measure(full, progress)
    console.table("predictors of the output's length, on unseen prompts", predictor.HEADINGS, found.table())
    if found.skipped:
        Console().print(f"Not measured: Alpaca, {found.skipped}.")
    return found.targets(), found.plain()


def _engine(full: bool, stage: Any) -> Found:
    _need(engine.missing() or _no_forecasts())
    config, home = engine.FULL if full else engine.QUICK, settings.read().home
    with stage("the real engine under every policy, in turns") as progress:
        found = engine.measure(config, home, encoder, WAY, progress)
    console.table("generation on this machine, lengths forced", engine.HEADINGS, found.table())
    return found.targets(), found.details()


def _load(full: bool, stage: Any) -> Found:
    _live()
    config, found = load.FULL if full else load.QUICK, {}
    for times in SHARES:
        with stage(f"chats over HTTP, {times:g} of what the device bears") as progress:
            told = replace(config, share=times)
            found[f"{times:g}"] = load.measure(load.POLICIES, told, progress)
        title = f"chats over HTTP, {times:g} of what the device bears by its profile"
        console.table(title, load.HEADINGS, found[f"{times:g}"].rows())
    return [], load.details(found, config)


def _input(_full: bool, stage: Any) -> Found:
    _live()
    with stage("bad input against a real endpoint, then a soak") as progress:
        found = packing_input.measure(progress)
    console.table("bad input", packing_input.HEADINGS, [one.row() for one in found.cases])
    return found.targets(), found.plain()


def _no_forecasts() -> str:
    """Why nothing can be forecast for Vicuna's requests; empty if it can."""
    kept = vicuna.is_kept(settings.read().home, WAY)
    return "" if kept else "needs forecasts that are trained first: pliant bench packing --part forecasts"


def _need(missing: str) -> None:
    if missing:
        raise Skipped(missing)


def _live() -> None:
    try:
        load.live_packing()
    except RegistryError as error:
        raise Skipped(f"needs a champion: pliant train packing ({error})") from None


PARTS: Mapping[str, Callable[[bool, Any], Found]] = {
    "forecasts": _forecasts,
    "study": _study,
    "published": _published,
    "predictor": _predictor,
    "engine": _engine,
    "load": _load,
    "input": _input,
}
