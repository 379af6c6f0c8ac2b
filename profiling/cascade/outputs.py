"""Runs every level of a cascade on held-out texts, whole and pruned: all that calibration and planning need.

Every classifier runs once over all texts (Tabi, section 5), and the exits on its layers are read in the same pass; then the
classifiers behind it run over what every pruning leaves of them. A text that was read before, whatever pruning made it, is
not read again. Knows no loader and no planning.

Shape suffixes: R texts, K outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pliant.cascade.artifact import Bag, Exit, Level, LevelOutputs, Outputs, PrunedOutputs, Pruning
from pliant.cascade.bag import BagModel
from pliant.cascade.exit import exit_logits
from pliant.cascade.prune import kept_words
from pliant.cascade.runtime import CascadeRuntime, Execution, Payload
from pliant.errors import InputError
from pliant.models.artifact import Classifier
from pliant.models.text import Reader, Reading, shorten
from pliant.progress import Progress, share, silent

Index = NDArray[np.int64]
Text = tuple[str, str | None]

PRUNINGS = tuple(Pruning("mean", alpha) for alpha in (0.5, 0.6, 0.7, 0.8, 0.9))


@dataclass(frozen=True, slots=True)
class OutputsConfig:
    """Every pruning by every classifier is read by every one behind it. `batch`: texts run at once."""

    prunings: tuple[Pruning, ...] = PRUNINGS
    batch: int = 32
    execution: Execution = field(default_factory=Execution)

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise InputError("batch", self.batch, "at least 1")


def run_all(
    levels: Sequence[Level],
    data: Any,  # a `TextData` of training/text_data.py
    index: Index,
    config: OutputsConfig,
    device: str = "cpu",
    progress: Progress = silent,
    digests: Sequence[str] = (),
) -> Outputs:
    """Return the outputs of all levels, smallest first, for the texts of `index`, with the levels' `digests`.

    Raises `InputError` without texts or levels, where levels have other classes than the data, and for an exit without its
    classifier among the levels.
    """
    if not levels or not len(index):
        raise InputError("levels or texts", "none", "at least one of each")
    for level in levels:
        if level.classes != data.classes:
            known = len(level.classes)
            raise InputError(f"classes of {level.name}", known, f"the {len(data.classes)} of {data.name}")
    texts: list[Text] = data.texts(index)
    trunks = dict(zip(digests, levels, strict=False))
    exits = [level for level in levels if isinstance(level, Exit)]
    if lacking := [each.large for each in exits if not isinstance(trunks.get(each.large), Classifier)]:
        raise InputError("levels", f"without the classifier {lacking[0]}", "those that exits are on")
    run: dict[int, _Run] = {}
    for number, level in enumerate(levels):
        if isinstance(level, Classifier):
            layers = sorted({each.layers for each in exits if trunks[each.large] is level})
            run[number] = _Run(level, config, device, layers)
    numbers = list(run)
    last, steps = numbers[-1], 2 * len(numbers) - 1
    for done, number in enumerate(numbers):
        part = share(progress, 100 * done // steps, 100 * (done + 1) // steps)
        run[number].read(texts, number < last and bool(config.prunings), part)
    shortened: list[
        tuple[int, Pruning, list[Text], NDArray[np.float32]]
    ] = []  # (by which level, how, texts, kept share)
    pruned: list[PrunedOutputs] = []
    for place, number in enumerate(numbers):
        each = run[number]
        if place:  # it reads what the levels before it shortened
            at = len(numbers) + place - 1
            part = share(progress, 100 * at // steps, 100 * (at + 1) // steps)
            each.read([text for _, _, left, _ in shortened for text in left], False, part)
            pruned += [
                PrunedOutputs(pruner, number, pruning, *each.outputs(left), kept_R)
                for pruner, pruning, left, kept_R in shortened
            ]
        if number < last:
            shortened += [(number, pruning, *_shortened(each, texts, pruning)) for pruning in config.prunings]
    whole = []
    for number, level in enumerate(levels):
        if isinstance(level, Bag):
            whole.append(LevelOutputs(*_bag_outputs(level, texts)))
        elif isinstance(level, Exit):
            trunk = next(each for each in run.values() if each.classifier is trunks[level.large])
            whole.append(LevelOutputs(*trunk.exit_outputs(level, texts)))
        else:
            whole.append(LevelOutputs(*run[number].outputs(texts)))
    labels, names = data.labels[index].astype(np.float64), tuple(level.name for level in levels)
    if data.classes:
        labels[labels < 0] = np.nan  # of nobody
    precision = config.execution.precision
    return Outputs(
        *(
            data.name,
            data.classes,
            names,
            tuple(digests),
            labels,
            tuple(whole),
            tuple(pruned),
            data.fingerprint,
            precision,
        )
    )


def _bag_outputs(bag: Bag, texts: Sequence[Text]) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Return logits [R, K] and length [R] of a bag."""
    reader = Reader(bag.tokenizer, bag.max_length)
    readings = [reader.read(*text) for text in texts]
    logits_RK = BagModel(bag).logits_of([(reading.ids, reading.types) for reading in readings])
    return logits_RK, np.array([len(reading.ids) for reading in readings], dtype=np.int32)


class _Run:
    """One classifier and all that it has read so far, by text; `layers`: after which exits read its hidden states."""

    def __init__(self, classifier: Classifier, config: OutputsConfig, device: str, layers: Sequence[int]) -> None:
        self.classifier = classifier
        self._reader = Reader(classifier.tokenizer, classifier.max_length)
        self._runtime = CascadeRuntime({0: classifier}, device, config.execution)
        self._batch, self._layers = config.batch, list(layers)
        self._logits: dict[Text, NDArray[np.float32]] = {}  # [K] each
        self._length: dict[Text, int] = {}
        self._features: dict[Text, NDArray[np.float32]] = {}  # [layers, 2 D] each
        self.importance: dict[Text, tuple[Reading, NDArray[np.float32]]] = {}  # with its reading; [N] each

    def read(self, texts: Sequence[Text], importance: bool, progress: Progress = silent) -> None:
        """Run the texts that are new, those of like length together."""
        fresh = [text for text in dict.fromkeys(texts) if text not in self._logits]
        readings = {text: self._reader.read(*text) for text in fresh}
        fresh.sort(key=lambda text: len(readings[text].ids))
        for start in range(0, len(fresh), self._batch):
            batch = fresh[start : start + self._batch]
            payloads: list[Payload] = [(readings[text].ids, readings[text].types) for text in batch]
            if self._layers:
                logits, features = self._runtime.hidden(0, payloads, self._layers)
                self._features |= zip(batch, features, strict=True)
            else:
                run = self._runtime.run(0, payloads, importance)
                logits = run.logits
                for text, received_N in zip(batch, run.importance or (), strict=False):
                    self.importance[text] = readings[text], received_N
            self._logits |= zip(batch, logits, strict=True)
            self._length |= {text: len(readings[text].ids) for text in batch}
            progress(start + len(batch), len(fresh))
        if not fresh:
            progress(1, 1)

    def outputs(self, texts: Sequence[Text]) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
        """Return logits [R, K] and length [R] of texts that were read."""
        logits_RK = np.stack([self._logits[text] for text in texts])
        return logits_RK, np.array([self._length[text] for text in texts], dtype=np.int32)

    def exit_outputs(self, exit: Exit, texts: Sequence[Text]) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
        """Return the same of an exit on this classifier."""
        place = self._layers.index(exit.layers)
        feature_RD = np.stack([self._features[text][place] for text in texts])
        return exit_logits(exit, feature_RD), np.array([self._length[text] for text in texts], dtype=np.int32)


def _shortened(level: _Run, texts: Sequence[Text], pruning: Pruning) -> tuple[list[Text], NDArray[np.float32]]:
    """Return the texts without what one level's importances prune, and [R] the share of each one's words that is left."""
    pairs: dict[Text, tuple[Text, float]] = {}
    for text in dict.fromkeys(texts):
        reading, importance = level.importance[text]
        kept_W = kept_words(importance, reading.words, pruning)
        left = text if kept_W.all() else shorten(*text, reading.spans, kept_W)
        pairs[text] = left, 1.0 if kept_W.all() else float(kept_W.mean())
    return [pairs[text][0] for text in texts], np.array([pairs[text][1] for text in texts], dtype=np.float32)
