"""Who takes part in the live comparison: Pliant's service, and what one would otherwise run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks import endpoint, places
from benchmarks.baselines import launch
from benchmarks.baselines.text_services import RIVALS, TextRival
from benchmarks.bins import traces
from benchmarks.bins.live import OURS, Live, LiveConfig, compare
from benchmarks.bins.minilm import MAX_LENGTH, Served, prepared
from benchmarks.bins.requests import Load, Texts, load_of, read_lengths, texts_for
from benchmarks.bins.texts import TextMaker, real_words
from benchmarks.contenders import Contender, Opener
from benchmarks.harness import Stage
from pliant.errors import InputError

LENGTHS_SEED = 99  # no seed of the comparison: bins are chosen for other requests than those measured
LENGTHS_RATE, LENGTHS_SECONDS = 50.0, 600.0


def missing() -> str:
    """Return why there can be no comparison here; empty if there can."""
    return traces.missing() or places.missing(places.ALPACA)


@dataclass(frozen=True, slots=True)
class Ground:
    """What is served, and the texts of its requests. `least`: tokens of the shortest text."""

    served: Served
    texts: Texts
    least: int

    def load(self, name: str, rate: float, seconds: float, seed: int) -> Load:
        return load_of(name, traces.stable(rate, seconds, seed), self.least, MAX_LENGTH)

    def seconds(self) -> float:
        """Return the mean of the dynamic runtime over the trace's lengths, one text at a time, by its profile."""
        return float(np.mean([self.served.bins.dynamic.between(int(n), 1) for n in sample()[:2000]]))


def ground(each: int, seed: int, stage: Stage) -> Ground:
    """Prepare all-MiniLM-L6-v2 with bins for such lengths, and `each` texts a length.

    Raises `InputError` for what is missing.
    """
    if missing():
        raise InputError("data", "missing", missing())
    with stage("all-MiniLM-L6-v2: compile, measure and choose bins") as progress:
        served = prepared(sample())
        progress(1, 1)
    maker = TextMaker(served.encoder.tokenizer, real_words())
    return Ground(served, texts_for(traces.stretched()[0], maker, MAX_LENGTH, each, seed), maker.least)


def measure(config: LiveConfig, stage: Stage) -> Live:
    """Prepare the model, and compare all contenders. Raises `InputError` for what is missing."""
    prepared_ground = ground(config.each, config.seed, stage)
    absent = {tried.name: tried.rival.missing for tried in RIVALS if tried.rival.missing is not None}
    every = contenders(prepared_ground.served)
    return compare(every, prepared_ground.texts, prepared_ground.load, config, stage, absent)


def sample() -> NDArray[np.int32]:
    """Return lengths to choose bins for."""
    return read_lengths(traces.stable(LENGTHS_RATE, LENGTHS_SECONDS, LENGTHS_SEED).lengths, 1, MAX_LENGTH)


def contenders(served: Served) -> list[Contender]:
    """Return all that are installed, with every setting that is tried."""
    installed = [tried for tried in RIVALS if tried.rival.missing is None]
    rivals = [Contender(tried.name, tried.options, _rival(served, tried), service=True) for tried in installed]
    return [Contender(OURS, {}, _ours(served)), *rivals]


def _ours(served: Served) -> Opener:
    return lambda _capacity: endpoint.serving("bins", project=served.project, refresh_seconds=0.0)


def _rival(served: Served, tried: TextRival) -> Opener:
    return lambda _capacity: launch.serving(tried.rival, tried.options, served.spec.text(), served.project.home)
