"""`pliant bench packing`: every target of the packing system, measured or simulated (each says which), written as JSON.

What several parts forecast by is trained in a part of its own (forecasts): those that only compute train nothing. Knows what
each part is given; measures nothing itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from rich.console import Console

from benchmarks import console, harness
from benchmarks.door import overload
from benchmarks.harness import Context, Measured, Part, Skipped, need
from benchmarks.packing import (
    alike,
    batches,
    contest,
    door,
    engine,
    forecasts,
    lateness,
    loading,
    predictor,
    published,
    real_model,
    study,
    vicuna,
)
from benchmarks.packing import input as packing_input
from benchmarks.packing.chats import live_packing, questions
from benchmarks.packing.slo import live as slo_live
from benchmarks.packing.slo import simulated as slo
from benchmarks.packing.vllm import comparison
from benchmarks.packing.vllm import contest as vllm
from flows import settings
from pliant.errors import RegistryError


def _forecasts(context: Context) -> Measured:
    need(contest.missing())
    with context.stage("predictor for Vicuna's lengths") as progress:
        vicuna.cached(settings.read().home, progress)
        progress(1, 1)
    return [], {}


def _study(context: Context) -> Measured:
    need(contest.missing() or _no_forecasts())
    config = contest.FULL if context.full else contest.QUICK
    with context.stage("simulations of all policies") as progress:
        result = contest.measure(config, settings.read().home, progress)
    console.table("predictors, on rows that they were not fitted on", forecasts.HEADINGS, result.qualities())
    for name, rows in result.sections.items():
        console.table(f"{name}: {rows[0].load}", study.HEADINGS, result.table(name))
    console.table("the default against the others, worst seed (simulated)", contest.VERDICTS, result.verdicts())
    return result.targets(), result.plain()


def _slo(context: Context) -> Measured:
    need(slo.missing())
    with context.stage("targets under overload, simulated, and what deciding costs") as progress:
        result = slo.measure(context.choose(slo.QUICK, slo.FULL, slo.SMALLEST), progress)
    console.table(
        "goodput with targets of 1 s or 4 s to the first token and 0.1 s a token", slo.HEADINGS, result.table()
    )
    over = ", ".join(f"{result.ratio(load, gives_up=True):.2f}x at {load:g}x" for load in slo.LOADS)
    Console().print(f"Over the best of them where clients give up once their first token is due: {over}.")
    return result.targets(), result.plain()


def _slo_live(context: Context) -> Measured:
    need(slo_live.missing())
    _champion()
    with context.stage("targets under overload, live, two servers in turns") as progress:
        result = slo_live.measure(slo_live.FULL if context.full else slo_live.QUICK, progress)
    shown = f"targets: first text within {1000 * result.ttft:.0f} ms, {1000 * result.tpot:.1f} ms a token"
    console.table(
        f"chats beyond what a core answers; {shown}", slo_live.HEADINGS, [each.cells() for each in result.rows]
    )
    return result.targets(), result.plain()


def _door(context: Context) -> Measured:
    model = live_packing().name
    with context.stage("chats beyond what HTTP carries") as progress:
        result = door.measure(model, *((8.0, 5) if context.full else (3.0, 3)), progress)
    console.table("a service whose engine computes nothing", overload.HEADINGS, result.table())
    return result.targets("chats"), result.plain()


def _published(context: Context) -> Measured:
    need(published.missing())
    with context.stage("the published tables, simulated") as progress:
        result = published.measure(progress)
    console.table("S3's Table 2, mean batch on an A100, and GPT-3 in a pipeline", published.HEADINGS, result.table())
    return result.targets(), result.plain()


def _predictor(context: Context) -> Measured:
    with context.stage("predictors, trained and judged") as progress:
        result = predictor.measure(context.full, progress)
    console.table("predictors of the output's length, on unseen prompts", predictor.HEADINGS, result.table())
    if result.skipped:
        Console().print(f"Not measured: Alpaca, {result.skipped}.")
    return result.targets(), result.plain()


def _engine(context: Context) -> Measured:
    need(vicuna.missing() or _no_forecasts())
    config, home = engine.FULL if context.full else engine.QUICK, settings.read().home
    with context.stage("the real engine under every policy, in turns") as progress:
        result = engine.measure(config, home, progress)
    console.table("generation on this machine, lengths forced", engine.HEADINGS, result.table())
    return result.targets(), result.plain()


def _batches(context: Context) -> Measured:
    with context.stage("iterations of growing batches, two engines in turns") as progress:
        result = batches.measure(progress=progress)
    console.table("an iteration, by its sequences", batches.HEADINGS, result.table())
    return result.targets(), result.plain()


def _alike(context: Context) -> Measured:
    with context.stage("prompts that begin alike, with and without sharing") as progress:
        result = alike.measure(progress=progress)
    console.table("the time to the first token", alike.HEADINGS, result.table())
    return result.targets(), result.plain()


def _real(context: Context) -> Measured:
    need(real_model.missing())
    with context.stage("a real language model, two engines in turns") as progress:
        result = real_model.measure(progress)
    console.table(f"{real_model.NAME} on Alpaca's prompts", engine.HEADINGS, result.table())
    return result.targets(), result.plain()


def _lateness(context: Context) -> Measured:
    config = lateness.FULL if context.full else lateness.QUICK
    name = _champion()
    with context.stage("forecasts at growing rates") as progress:
        result = lateness.measure(name, questions(), config, progress)
    console.table("late forecasts of the real service", lateness.HEADINGS, result.table())
    return result.targets(), result.plain()


def _input(context: Context) -> Measured:
    _champion()
    with context.stage("bad input against a real endpoint, then a soak") as progress:
        result = packing_input.measure(progress)
    console.table("bad input", packing_input.HEADINGS, [case.row() for case in result.cases])
    return result.targets(), result.plain()


def _loading(context: Context) -> Measured:
    config = loading.FULL if context.full else loading.QUICK
    need(loading.missing(config))
    with context.stage("a large generator, stored and loaded") as progress:
        result = loading.measure(config, progress)
    console.table("loading a generator over reading its file", loading.HEADINGS, result.table())
    return result.targets(), result.plain()


def _vllm(context: Context, quick: vllm.VllmConfig = vllm.QUICK, full: vllm.VllmConfig = vllm.FULL) -> Measured:
    need(vllm.missing())
    config = full if context.full else quick
    predictor = real_model.predictor()
    with context.stage(f"schedulers in vLLM, in turns: {config.memory.name}") as progress:
        result = vllm.measure(config, predictor, progress)
    console.table("vLLM on this machine, medians over the repeats", comparison.HEADINGS, result.table())
    return result.targets(), result.plain()


def _champion() -> str:
    """Return the name of the champion on the embedded corpus. Raises `Skipped` without one."""
    try:
        return live_packing().name
    except RegistryError as error:
        raise Skipped(f"needs a champion: pliant train packing ({error})") from error


def _no_forecasts() -> str:
    """Return why nothing can be forecast for Vicuna's requests; empty if it can."""
    kept = vicuna.is_kept(settings.read().home)
    return "" if kept else "needs forecasts that are trained first: pliant bench packing --part forecasts"


PARTS: Mapping[str, Part] = {
    "forecasts": Part(_forecasts, 5.0, 60.0),
    "study": Part(_study, 100.0),
    "slo": Part(_slo, 60.0),
    "slo-live": Part(_slo_live, 240.0),
    "published": Part(_published, 30.0),
    "predictor": Part(_predictor, 60.0, 95.0),
    "door": Part(_door, 120.0),
    "engine": Part(_engine, 100.0, 600.0),
    "batches": Part(_batches, 40.0),
    "alike": Part(_alike, 60.0),
    "real": Part(_real, 240.0),
    "lateness": Part(_lateness, 60.0),
    "input": Part(_input, 60.0),
    "loading": Part(_loading, 120.0),
    "vllm": Part(_vllm, 600.0),
    "vllm-ample": Part(partial(_vllm, quick=vllm.AMPLE, full=vllm.AMPLE_FULL), 450.0),
}
"""The seconds of "engine", "lateness", "loading" and those of vLLM are guesses."""

bench = partial(harness.run, "packing", PARTS)
