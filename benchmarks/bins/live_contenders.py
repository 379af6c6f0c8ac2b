"""Who takes part in the live comparison: Pliant's service, and what one would otherwise run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks import endpoint
from benchmarks.baselines.text_services import RIVALS, TextRival
from benchmarks.baselines.text_services import serving as serving_rival
from benchmarks.bins import texts as bins_texts
from benchmarks.bins import traces
from benchmarks.bins.live import OURS, Contender, Live, LiveConfig, Open, Stage, compare
from benchmarks.bins.minilm import MAX_LENGTH, Served, prepared
from benchmarks.bins.requests import Load, Texts, load_of, read_lengths, texts_for
from benchmarks.bins.texts import TextMaker, real_words
from benchmarks.load_generator import allow_many_connections
from pliant.errors import InputError

LENGTHS_SEED = 99  # no seed of the comparison: bins are chosen for other requests than those measured
LENGTHS_RATE, LENGTHS_SECONDS = 50.0, 600.0


def missing() -> str:
    """Why there can be no comparison here; empty if there can."""
    return traces.missing() or bins_texts.missing()


@dataclass(frozen=True, slots=True)
class Ground:
    """What is served, and what it is asked. `least`: tokens of the shortest text."""

    served: Served
    texts: Texts
    least: int

    def load(self, name: str, rate: float, seconds: float, seed: int) -> Load:
        return load_of(name, traces.stable(rate, seconds, seed), self.least, MAX_LENGTH)

    def seconds(self) -> float:
        """Mean of the dynamic runtime over the trace's lengths, one text at a time, by its profile."""
        return float(np.mean([self.served.bins.dynamic.between(int(n), 1) for n in sample()[:2000]]))


def ground(each: int, seed: int, stage: Stage) -> Ground:
    """all-MiniLM-L6-v2 with bins for such lengths, and `each` texts a length. Raises `InputError` for what is missing."""
    if missing():
        raise InputError("data", "missing", missing())
    with stage("all-MiniLM-L6-v2: compile, measure and choose bins") as progress:
        served = prepared(sample())
        progress(1, 1)
    maker = TextMaker(served.encoder.tokenizer, real_words())
    return Ground(served, texts_for(traces.stretched()[0], maker, MAX_LENGTH, each, seed), maker.least)


def measure(config: LiveConfig, stage: Stage) -> Live:
    """Prepare the model, and compare all contenders. Raises `InputError` for what is missing."""
    on = ground(config.each, config.seed, stage)
    absent = {one.name: one.rival.missing for one in RIVALS if one.rival.missing is not None}
    return compare(contenders(on.served), on.texts, on.load, config, stage, absent)


def sample() -> NDArray[np.int32]:
    """Lengths to choose bins for."""
    return read_lengths(traces.stable(LENGTHS_RATE, LENGTHS_SECONDS, LENGTHS_SEED).lengths, 1, MAX_LENGTH)


def contenders(served: Served) -> list[Contender]:
    """All that are installed, with every setting that is tried."""
    rivals = [Contender(one.name, one.options, _rival(served, one)) for one in RIVALS if one.rival.missing is None]
    return [Contender(OURS, {}, _ours(served)), *rivals]


def _ours(served: Served) -> Open:
    @contextmanager
    def opened() -> Iterator[str]:
        with endpoint.serving("bins", told=served.told, refresh_seconds=0.0) as service:
            yield service.url

    return opened


def _rival(served: Served, tried: TextRival) -> Open:
    @contextmanager
    def opened() -> Iterator[str]:
        allow_many_connections()
        with serving_rival(tried, served.spec, served.told.home) as address:
            yield address

    return opened
