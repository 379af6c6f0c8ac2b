"""The predictor of output lengths, judged beside what needs no predictor: on Alpaca and on the embedded generator's outputs.

Alpaca's lengths are those of its reference answers (training/packing/lengths.py). Of the paper's ten classes of 2,048
tokens 97% of them lie in the first, so that whoever says that one is hardly to be beaten in classes told right; ten classes
of 512 tokens are judged as well. The majority class is a rival in classes told right and in pinball loss. The
embedded generator is the registry's champion, or else one trained here in the quick setting; its outputs are observed by
the engine that serves. What is judged was never trained on.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from benchmarks.places import SHARED
from benchmarks.results import Target
from flows import settings
from flows.packing import lengths, live
from flows.packing.config import LengthsConfig, PackingFlowConfig
from pliant.errors import RegistryError
from pliant.packing.artifact import Generator, Predictor
from pliant.packing.engine.model import PredictorModel
from pliant.progress import Progress, share, silent
from training.packing import corpus as packing_corpus
from training.packing import generator as packing_generator
from training.packing.generator import GeneratorConfig
from training.packing.lengths import LengthData, divide, load, take
from training.packing.predictor import PredictorConfig, train

ALPACA = SHARED / "text" / "alpaca_train.parquet"
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
        """Of Alpaca's lengths. The last 64 tokens leave the form's first sentence out, which says nothing."""
        return PredictorConfig(epochs=self.alpaca_epochs, patience=1, max_length=64)


QUICK = StudyConfig()
FULL = StudyConfig(10_000, 4000, 2000, 10)


@dataclass(frozen=True, slots=True)
class Judged:
    """`metrics` as training/packing/judge.py names them; `milliseconds` of a prediction, alone: median and p99."""

    data: str
    class_tokens: int
    prompts: int
    parameters: int
    train_seconds: float
    metrics: dict[str, float]
    milliseconds: tuple[float, float]

    def row(self) -> tuple[str, ...]:
        m = self.metrics
        shown = (f"{m['bucket_accuracy']:.1%}", f"{m['majority_class']:.1%}", f"{m['tau']:.2f}", f"{m['pinball']:.3f}")
        reserved = (f"{m[name]:.0f}" for name in ("over_0.9", "under_0.9", "over_constant"))
        times = (f"{one:.2f}" for one in self.milliseconds)
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
                Target(f"{name}: pinball loss over the {of}", m["pinball"] / loss, "<=", 0.999, "x")
                for of, loss in rivals.items()
            ),
        ]


@dataclass(frozen=True)
class Found:
    judged: tuple[Judged, ...]
    skipped: str  # why Alpaca was not measured; empty: it was

    def targets(self) -> list[Target]:
        served = self.judged[0]  # the embedded default
        made = [bar for one in self.judged for bar in one.targets()]
        return [*made, Target("one prediction, embedded default, one thread", served.milliseconds[0], "<=", 2.0, "ms")]

    def table(self) -> list[tuple[str, ...]]:
        return [one.row() for one in self.judged]

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def missing() -> str:
    """Why Alpaca cannot be measured here; empty if it can."""
    return "" if ALPACA.is_file() else f"needs {ALPACA.name} in ../shared/data/text, which is not part of the project"


def measure(full: bool = False, progress: Progress = silent) -> Found:
    """The embedded corpus first, then Alpaca where it is there."""
    config = FULL if full else QUICK
    fit, test = embedded(config.requests, share(progress, 0, 55))
    judged = [_judge(PredictorConfig(), fit, test, config.timed, share(progress, 55, 65))]
    if not (skipped := missing()):
        for number, limit in enumerate(LIMITS):
            told = share(progress, 65 + 18 * number, 82 + 18 * number)
            judged.append(_judge(replace(config.predictor, limit=limit), *alpaca(config.alpaca), config.timed, told))
    progress(100, 100)
    return Found(tuple(judged), skipped)


def alpaca(rows: int) -> tuple[LengthData, LengthData]:
    """To fit and to judge by."""
    data = load(ALPACA, "alpaca")
    order = np.random.default_rng(SEED).permutation(len(data.tokens))[:rows]
    return divide(take(data, order), 0.2, SEED)


def embedded(requests: int, progress: Progress) -> tuple[LengthData, LengthData]:
    """Observed lengths of the embedded generator, as the flow observes them."""
    corpus = packing_corpus.load()
    generator = _champion() or packing_generator.train(GeneratorConfig(), corpus, share(progress, 0, 60))
    flow = PackingFlowConfig(lengths=LengthsConfig(requests=requests))
    asked = lengths.asked(flow, corpus)
    told = flow.lengths, "cpu", torch.get_num_threads(), flow.seed
    observed = lengths.observe(generator, asked, *told, share(progress, 60, 100))
    fit, test = observed.part(held_out=False), observed.part(held_out=True)
    return replace(fit, name="embedded"), replace(test, name="embedded")


def _champion() -> Generator | None:
    """The published embedded generator, if there is one."""
    registry = live.open_registry(settings.read())
    try:
        found = live.live(registry).get("docstrings")
        return live.generator(registry, found) if found else None
    except RegistryError:
        return None


def _judge(config: PredictorConfig, fit: LengthData, test: LengthData, timed: int, progress: Progress) -> Judged:
    began = time.perf_counter()
    made = train(config, fit, progress, test=test)
    seconds = time.perf_counter() - began
    parameters = sum(array.size for array in made.weights.values())
    times = milliseconds(made, test.prompts, timed)
    name, count = fit.name, len(test.prompts)
    return Judged(name, made.bucket_tokens, count, parameters, seconds, dict(made.metrics), times)


def milliseconds(predictor: Predictor, prompts: Sequence[str], count: int) -> tuple[float, float]:
    """Median and 99th percentile of single predictions by one thread, tokenisation included."""
    model, threads = PredictorModel.of(predictor), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        took = [_timed(model, prompts[number % len(prompts)]) for number in range(count + WARMUP)]
    finally:
        torch.set_num_threads(threads)
    return float(np.quantile(took[WARMUP:], 0.5)), float(np.quantile(took[WARMUP:], 0.99))


def _timed(model: PredictorModel, prompt: str) -> float:
    began = time.perf_counter()
    model.predict([prompt])
    return 1e3 * (time.perf_counter() - began)
