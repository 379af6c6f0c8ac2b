"""The predictor of output lengths, judged beside what needs no predictor: on Alpaca and on the embedded generator's outputs.

Alpaca's lengths are those of its reference answers (training/packing/lengths.py). Of the paper's ten classes of 2,048
tokens 97% of them lie in the first, so that whoever says that one is hardly to be beaten in right classes; ten classes of
512 tokens are judged as well. The majority class is a rival in right classes and in pinball loss. The
embedded generator is the registry's champion, or else one trained here in the quick setting; its outputs are observed by
the engine that serves. What is judged was never trained on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks import places
from benchmarks.places import ALPACA
from benchmarks.results import Target
from benchmarks.timing import seconds_of
from flows import settings
from flows.packing import champions, lengths
from flows.packing.config import LengthsConfig, PackingFlowConfig
from flows.release import open_registry
from pliant.errors import RegistryError
from pliant.packing.artifact import Generator, Predictor
from pliant.packing.engine.model import PredictorModel
from pliant.progress import Progress, share, silent
from training.packing import corpus as packing_corpus
from training.packing import generator as packing_generator
from training.packing.generator import GeneratorConfig
from training.packing.lengths import LengthData, divide, load, take
from training.packing.predictor import PredictorConfig, train

LIMITS = (512, 2048)  # tokens, of which a class is a tenth
SEED = 1
WARMUP = 20  # predictions before those that are timed
HEADINGS = (
    *("lengths", "class of", "prompts", "classes right", "majority", "tau", "pinball", "constant", "of majority"),
    *("within 0.9", "over, 0.9", "under, 0.9", "over, constant", "ms", "ms p99"),
)


@dataclass(frozen=True, slots=True)
class StudyConfig:
    alpaca: int = 6000  # rows at most
    requests: int = 1500  # of the embedded generator
    timed: int = 400  # predictions
    alpaca_epochs: int = 4

    @property
    def predictor(self) -> PredictorConfig:
        """Return how Alpaca's lengths are learnt. The last 64 tokens leave out the form's empty first sentence."""
        return PredictorConfig(kind="encoder", epochs=self.alpaca_epochs, patience=1, max_length=64)


QUICK = StudyConfig()
FULL = StudyConfig(10_000, 4000, 2000, 10)


@dataclass(frozen=True, slots=True)
class Judged:
    """`metrics` as training/packing/judge.py names them; `milliseconds` of a prediction, alone: median and p99."""

    data: str
    class_tokens: int
    prompts: int
    parameters: int
    metrics: dict[str, float]
    milliseconds: tuple[float, float]

    def row(self) -> tuple[str, ...]:
        m = self.metrics
        shown = (f"{m['bucket_accuracy']:.1%}", f"{m['majority_class']:.1%}", f"{m['tau']:.2f}", f"{m['pinball']:.3f}")
        reserved = (f"{m[name]:.0f}" for name in ("over_0.9", "under_0.9", "over_constant"))
        times = (f"{time:.2f}" for time in self.milliseconds)
        named = self.data, str(self.class_tokens), str(self.prompts)
        plain = f"{m['constant_pinball']:.3f}", f"{m['majority_pinball']:.3f}"
        return *named, *shown, *plain, f"{m['coverage_0.9']:.1%}", *reserved, *times

    def targets(self) -> list[Target]:
        m, name = self.metrics, f"{self.data}, classes of {self.class_tokens} tokens"
        better = m["bucket_accuracy"] - m["majority_class"]
        rivals = {"constant quantiles'": m["constant_pinball"], "majority class's": m["majority_pinball"]}
        return [
            Target(f"{name}: right above the majority class", better, ">=", 1 / self.prompts, "share"),
            *(
                Target(f"{name}: pinball loss over the {of}", m["pinball"] / rivals[of], "<=", 0.999, "x")
                for of in rivals
            ),
        ]


@dataclass(frozen=True)
class PredictorStudy:
    judged: tuple[Judged, ...]
    skipped: str  # why Alpaca was not measured; empty: it was

    def targets(self) -> list[Target]:
        served = self.judged[0]  # the embedded default
        targets = [target for judged in self.judged for target in judged.targets()]
        return [
            *targets,
            Target("one prediction, embedded default, one thread", served.milliseconds[0], "<=", 2.0, "ms"),
        ]

    def table(self) -> list[tuple[str, ...]]:
        return [judged.row() for judged in self.judged]

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def measure(full: bool = False, progress: Progress = silent) -> PredictorStudy:
    """Judge on the embedded corpus first, then on Alpaca where it is there."""
    config = FULL if full else QUICK
    fit, test = embedded(config.requests, share(progress, 0, 55))
    judged = [_judge(PredictorConfig(kind="encoder"), fit, test, config.timed, share(progress, 55, 65))]
    if not (skipped := places.missing(ALPACA)):
        for number, limit in enumerate(LIMITS):
            part = share(progress, 65 + 18 * number, 82 + 18 * number)
            judged.append(_judge(replace(config.predictor, limit=limit), *alpaca(config.alpaca), config.timed, part))
    progress(100, 100)
    return PredictorStudy(tuple(judged), skipped)


def alpaca(rows: int) -> tuple[LengthData, LengthData]:
    """Return Alpaca's rows to fit and to judge by."""
    data = load(ALPACA, "alpaca")
    order = np.random.default_rng(SEED).permutation(len(data.tokens))[:rows]
    return divide(take(data, order), 0.2, SEED)


def embedded(requests: int, progress: Progress) -> tuple[LengthData, LengthData]:
    """Return observed lengths of the embedded generator, as the flow observes them."""
    corpus = packing_corpus.load()
    generator = _champion() or packing_generator.train(GeneratorConfig(), corpus, share(progress, 0, 60))
    flow = PackingFlowConfig(lengths=LengthsConfig(requests=requests))
    how = flow.lengths, "cpu", torch.get_num_threads(), flow.seed
    observed = lengths.observe(generator, lengths.select_prompts(flow, corpus), *how, share(progress, 60, 100))
    fit, test = observed.part(held_out=False), observed.part(held_out=True)
    return replace(fit, name="embedded"), replace(test, name="embedded")


def _champion() -> Generator | None:
    """Return the published embedded generator, if there is one."""
    registry = open_registry(settings.read(), "packing")
    try:
        champion = champions.load_champions(registry).get("docstrings")
        return champions.fetch_generator(registry, champion) if champion else None
    except RegistryError:
        return None


def _judge(config: PredictorConfig, fit: LengthData, test: LengthData, timed: int, progress: Progress) -> Judged:
    predictor = train(config, fit, progress, test=test)
    parameters = sum(array.size for array in predictor.weights.values())
    times = milliseconds(predictor, test.prompts, timed)
    return Judged(fit.name, predictor.bucket_tokens, len(test.prompts), parameters, dict(predictor.metrics), times)


def milliseconds(predictor: Predictor, prompts: Sequence[str], count: int) -> tuple[float, float]:
    """Return the median and the 99th percentile of single predictions by one thread, tokenisation included."""
    model, threads = PredictorModel.of(predictor), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        calls = [partial(model.predict, [prompts[number % len(prompts)]]) for number in range(count + WARMUP)]
        seconds = [seconds_of(call) for call in calls][WARMUP:]
    finally:
        torch.set_num_threads(threads)
    return 1e3 * float(np.quantile(seconds, 0.5)), 1e3 * float(np.quantile(seconds, 0.99))
