"""Live against simulated: on a "live" journal that the simulator itself made, with overheads that are known."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest

from benchmarks.bins.fidelity import Fidelity, Overheads, arrived, compared, latencies, overheads_of, since
from benchmarks.bins.requests import TASK, TIMEOUT
from pliant.bins.artifact import Bins, Shape
from pliant.bins.knowledge import Config, knowledge_of
from pliant.bins.scheduler import BinsScheduler
from pliant.bins.simulated import SimulatedBins
from pliant.errors import InputError
from pliant.latency import LatencyTable
from pliant.progress import silent
from pliant.protocol import Finished, Request
from pliant.simulator import simulate

BINS = Bins(
    name=TASK,
    encoder="0" * 64,
    device_class="cpu",
    engine="eager",
    slo=0.15,
    shapes=(Shape(64, 1), Shape(256, 8, dynamic=True)),
    seconds=(0.006,),
    dynamic=LatencyTable((16, 64, 256), (1, 8), ((0.003, 0.010), (0.007, 0.040), (0.025, 0.180))),
    lengths=np.ones(257, dtype=np.int64),
    load_seconds=1.0,
    placement="shared",
    files={},
    versions={},
)
LAUNCH, REQUEST = 0.0012, 0.0034
FIRST = 5


def fresh() -> BinsScheduler:
    return BinsScheduler(knowledge_of([BINS]), Config(workers=1))


def requests(rate: float = 80.0, count: int = 3000) -> list[Request]:
    rng = np.random.default_rng(0)
    times = np.cumsum(rng.exponential(1 / rate, count))
    lengths = rng.integers(3, 200, count)
    return [
        Request(i, float(at), float(at) + TIMEOUT, TASK, length=int(n))
        for i, (at, n) in enumerate(zip(times, lengths, strict=True))
    ]


@pytest.fixture(scope="module")
def run():
    """(latencies at the client, journal) of a service whose overheads are LAUNCH and REQUEST."""
    made = requests()
    journal = simulate(fresh(), made, SimulatedBins(knowledge_of([BINS]), made, beyond=LAUNCH))
    return latencies(journal) + REQUEST, journal


def test_overheads_are_found_again(run):
    found = overheads_of(*run)
    assert found.launch == pytest.approx(LAUNCH, abs=1e-9)
    assert found.request == pytest.approx(REQUEST, abs=1e-9)


def test_a_simulation_with_the_right_overheads_is_the_live_run(run):
    found = compared(fresh(), knowledge_of([BINS]), *run, Overheads(LAUNCH, REQUEST))
    assert found.simulated == pytest.approx(run[0])
    assert [bar.measured for bar in found.targets()] == pytest.approx([0.0, 0.0])
    assert all(bar.met for bar in found.targets())
    assert found.slowdown == pytest.approx(1.0)


def test_without_the_overheads_it_is_not_and_the_bar_says_so(run):
    found = compared(fresh(), knowledge_of([BINS]), *run, Overheads(0.0, 0.0))
    assert found.targets()[0].measured > 0.05
    assert not found.targets()[0].met


def test_a_machine_slower_than_its_profile_is_told(run):
    entries = [
        replace(entry, event=replace(entry.event, seconds=1.3 * entry.event.seconds))
        if isinstance(entry.event, Finished)
        else entry
        for entry in run[1]
    ]
    found = compared(fresh(), knowledge_of([BINS]), run[0], entries, Overheads(LAUNCH, REQUEST))
    assert found.slowdown == pytest.approx(1.3)


def test_with_a_request_unanswered_nothing_is_claimed(run):
    live, journal = run[0].copy(), run[1]
    live[7] = math.nan
    found = compared(fresh(), knowledge_of([BINS]), live, journal, Overheads(LAUNCH, REQUEST))
    assert found.unanswered == 1
    assert not any(bar.met for bar in found.targets())


def test_what_warmed_up_before_the_trace_is_left_out(run):
    _, journal = run
    kept = since(journal, FIRST)
    assert min(request.id for request in arrived(kept)) == FIRST
    with pytest.raises(InputError, match="journal"):
        since(journal, 10**6)


def test_the_bars_are_relative_to_live():
    live, simulated = np.full(100, 0.010), np.full(100, 0.0104)
    mean, p98 = Fidelity(live, simulated, Overheads(0, 0), 0).targets()
    assert (mean.measured, p98.measured) == pytest.approx((0.04, 0.04))
    assert mean.met and p98.met


@pytest.mark.slow
def test_some_seconds_of_the_trace_run_live_and_simulated(tmp_path, monkeypatch):
    """That all of it runs; how near they are is the benchmark's business, on a machine that does nothing else."""
    from benchmarks.bins.fidelity import FidelityConfig, measure
    from benchmarks.bins.live_contenders import missing
    from benchmarks.minilm import PACKAGE

    if missing() or find_spec(PACKAGE) is None:
        pytest.skip(missing() or f"{PACKAGE} is not installed")
    monkeypatch.setenv("PLIANT_HOME", str(tmp_path))
    found = measure(FidelityConfig(seconds=10.0, calibration=3.0, share=0.4), lambda _: nullcontext(silent))
    assert found.unanswered == 0
    assert len(found.live) == len(found.simulated) > 15
    assert found.overheads.launch > 0 and found.overheads.request > 0
    assert all(np.isfinite(bar.measured) for bar in found.targets())
