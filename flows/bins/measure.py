"""Measures an encoder's runtimes on the device at hand: the fastest engine, its staircase, and the bins chosen by it.

Compiles and measures. Of the engines one is taken by a few lengths; its staircase at batch 1 is measured at every length
that could be an edge; what the edges and batches then chosen really take is measured once more, beside the dynamic runtime.
Knows no Prefect and no registry.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pliant.bins.artifact import Bins, Encoder, Shape
from pliant.bins.runtimes.cache import versions
from pliant.bins.runtimes.compile import compile_encoder
from pliant.bins.runtimes.runtime import BinsRuntime
from pliant.errors import ArtifactError, InputError, PliantError
from pliant.flows.arithmetic import chosen
from pliant.flows.bins import plan
from pliant.flows.bins.config import AUTO, BinsFlowConfig
from pliant.flows.config import configured_class
from pliant.flows.progress import shares
from pliant.latency import LatencyTable
from pliant.models.execution import reason_of
from pliant.precision import FLOAT32
from pliant.profiling.bins.latency import LatencyConfig, Measured, profile
from pliant.progress import Progress, share

Files = Mapping[str, str]
Trial = tuple[str, str]
"""An engine and a precision."""
LOADS = 3  # runtimes whose loading is timed


@dataclass(frozen=True, slots=True)
class Latencies:
    """A stage's result alone: the engine that was taken, and its staircase at batch 1."""

    KIND: ClassVar[str] = "bins-latencies"
    SCHEMA: ClassVar[int] = 1

    device: str  # device class
    engine: str
    trials: Mapping[str, float]  # engine -> geometric mean of a text's seconds; empty where the settings name one
    untried: Mapping[str, str]  # engine -> why it could not be measured
    static: tuple[float, ...]  # seconds of a static runtime of each of `dynamic`'s lengths
    dynamic: LatencyTable  # of batch 1
    files: Files  # compiled, relative to the cache folder
    fallbacks: tuple[str, ...] = ()  # what the engine could not do, one sentence each
    precision: str = FLOAT32
    arithmetic: str = ""  # a sentence on why it is this precision; empty where there was no choice

    def alone(self) -> dict[int, float]:
        """Static seconds at batch 1 by length."""
        return dict(zip(self.dynamic.settings, self.static, strict=True))


@dataclass(frozen=True, slots=True)
class Half:
    """A precision to try beside float32, and what gives the share of right answers that it costs."""

    precision: str
    cost: Callable[[], float]


def measure(
    config: BinsFlowConfig, encoder: Encoder, folder: Path, progress: Progress, half: Half | None = None
) -> Latencies:
    """Take the fastest engine and measure its staircase: in `half`, where that is faster and accuracy allows it.

    Raises `InputError` where no engine works here.
    """
    trials, untried, compiled = _try_all(config, encoder, folder, share(progress, 0, 60), half)
    (engine, precision), reason = _fastest(config, trials, half)
    files = compiled[engine, precision]
    latency = replace(config.latency, lengths=plan.candidates(config.edges.step, encoder.max_length), batches=(1,))
    measured = _profile(config, encoder, (engine, precision), folder, latency, files, share(progress, 60, 100))
    compared = {trial_name(trial): seconds for trial, seconds in trials.items()}
    return Latencies(
        device=configured_class(config),
        engine=engine,
        trials=compared if len(compared) > 1 else {},
        untried=untried,
        static=tuple(measured.static[Shape(length, 1)] for length in measured.dynamic.settings),
        dynamic=measured.dynamic,
        files=dict(files),
        fallbacks=measured.fallbacks,
        precision=precision,
        arithmetic=reason,
    )


def _fastest(config: BinsFlowConfig, trials: Mapping[Trial, float], half: Half | None) -> tuple[Trial, str]:
    """Return the fastest trial, and a sentence on why it has its precision: empty where there was no choice."""
    best = min((trial for trial in trials if trial[1] == FLOAT32), key=trials.__getitem__)
    halves = [trial for trial in trials if trial[1] != FLOAT32]
    if half is None or not halves:
        return best, ""
    best_half = min(halves, key=trials.__getitem__)
    ratio = trials[best_half] / trials[best]
    served, reason = chosen(config.arithmetic, half.precision, ratio, half.cost)
    return best_half if served else best, reason


def trial_name(trial: Trial) -> str:
    """Return what a trial is called in reports: its engine and, if it is not float32, the precision."""
    engine, precision = trial
    return engine if precision == FLOAT32 else f"{engine}.{precision}"


def engines(config: BinsFlowConfig) -> tuple[str, ...]:
    """Return the engines to be tried."""
    if config.engine.engine != AUTO:
        return (config.engine.engine,)
    return config.engine.tried or (("onnx", "eager") if config.device == "cpu" else ("graphs", "eager"))


def _try_all(
    config: BinsFlowConfig, encoder: Encoder, folder: Path, progress: Progress, half: Half | None
) -> tuple[dict[Trial, float], dict[str, str], dict[Trial, Files]]:
    """Return seconds by trial that works here, why others do not, and compiled files. A single trial is not timed."""
    seconds, untried, compiled = {}, {}, {}
    trials = [(name, FLOAT32) for name in engines(config)]
    if half is not None:
        trials += [(name, half.precision) for name in engines(config) if name != "onnx"]
    for trial, part in shares(progress, trials):
        try:
            seconds[trial], compiled[trial] = _try(config, encoder, trial, folder, len(trials) > 1, part)
        except PliantError as error:
            if len(trials) == 1:
                raise
            untried[trial_name(trial)] = str(error)
    if FLOAT32 not in {precision for _, precision in seconds}:
        names = ", ".join(engines(config))
        raise InputError("engine", names, f"one that works here ({'; '.join(untried.values())})")
    return seconds, untried, compiled


def _try(
    config: BinsFlowConfig, encoder: Encoder, trial: Trial, folder: Path, compared: bool, progress: Progress
) -> tuple[float, Files]:
    engine, precision = trial
    latency = replace(config.latency, lengths=config.engine.lengths, batches=(1,))
    files = compile_encoder(encoder, engine, folder, config.device, share(progress, 0, 80), precision)
    if not compared:
        return 0.0, files
    measured = _profile(config, encoder, trial, folder, latency, files, share(progress, 80, 100))
    if measured.fallbacks:  # it would not be this engine that was timed
        raise ArtifactError(measured.fallbacks[0])
    best = [min(seconds, measured.dynamic.at(shape.length, 1)) for shape, seconds in measured.static.items()]
    return statistics.geometric_mean(best), files


def _profile(
    config: BinsFlowConfig,
    encoder: Encoder,
    trial: Trial,
    folder: Path,
    latency: LatencyConfig,
    files: Files,
    progress: Progress,
) -> Measured:
    (engine, precision), device = trial, config.device
    try:
        return profile(encoder, engine, folder, files, latency, device, config.threads, progress, precision=precision)
    except RuntimeError as error:  # of torch, which raises it for whatever a device refuses
        name = trial_name(trial)
        raise ArtifactError(f"{encoder.name} does not run with the engine {name}: {reason_of(error)}") from error


def finish(
    config: BinsFlowConfig,
    encoder: Encoder,
    digest: str,
    slo: float,
    requests_N: NDArray[np.int64],
    measured: Latencies,
    folder: Path,
    progress: Progress,
) -> tuple[Bins, dict[str, Any]]:
    """Return the bins, and as plain values how they were chosen (flows/bins/publish.py: `choice_of`, `weighed_of`)."""
    static_N = plan.interpolated(measured.alone(), len(requests_N) - 1)
    choice = plan.choose(requests_N, static_N, measured.dynamic, config.edges)
    latency = replace(config.latency, lengths=_lengths(choice.edges, config), batches=config.edges.batches)
    trial = measured.engine, measured.precision
    again = _profile(config, encoder, trial, folder, latency, measured.files, share(progress, 0, 90))
    static = {shape: seconds for shape, seconds in again.static.items() if shape.length in choice.edges}
    staircase = static_N, measured.dynamic
    weighed = plan.weigh(static, again.dynamic, requests_N, config.edges.margin, staircase)
    dynamic = Shape(encoder.max_length, config.edges.batches[-1], True)  # takes what no other does
    shapes = (*(Shape(trial.length, trial.batch) for trial in weighed if trial.kept), dynamic)
    bins = Bins(
        name=encoder.name,
        encoder=digest,
        device_class=measured.device,
        engine=measured.engine,
        slo=slo,
        shapes=shapes,
        seconds=tuple(again.static[shape] for shape in shapes[:-1]),
        dynamic=again.dynamic,
        lengths=requests_N,
        load_seconds=_load_seconds(config, encoder, shapes, trial, folder, measured.files),
        placement=config.placement,
        files=dict(measured.files),
        versions=versions(measured.engine),
        precision=measured.precision,
        unpooled=encoder.head == "embedding",
    )
    progress(100, 100)
    fallbacks = list(dict.fromkeys((*measured.fallbacks, *again.fallbacks)))
    notes = {"choice": asdict(choice), "weighed": [asdict(trial) for trial in weighed], "fallbacks": fallbacks}
    return bins, notes


def _lengths(edges: Sequence[int], config: BinsFlowConfig) -> tuple[int, ...]:
    """Return the lengths to measure: the edges and, for the dynamic runtime, some below the first one."""
    short = (config.edges.step, *config.latency.lengths)
    return tuple(sorted({*edges, *(n for n in short if not edges or n <= edges[0])}))


def _load_seconds(
    config: BinsFlowConfig, encoder: Encoder, shapes: Sequence[Shape], trial: Trial, folder: Path, files: Files
) -> float:
    """Return the median seconds that a device takes to load another bin's runtimes, with weights and files at hand."""
    (engine, precision), device = trial, config.device
    runtime = BinsRuntime(encoder, shapes, engine, folder, files, device, config.threads, "single", precision)
    firsts = {shape.length: number for number, shape in reversed(list(enumerate(shapes)))}
    taken = []
    for number in list(firsts.values())[:LOADS]:
        start = time.perf_counter()
        runtime.load(number)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)
