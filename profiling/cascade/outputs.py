"""Runs every level of a cascade on held-out texts, whole and pruned: all that calibration and planning need.

Every level runs once over all texts (Tabi, section 5); then the levels behind it run over what every pruning leaves of
them. A text that was read before, whatever pruning made it, is not read again. Knows no loader and no planning.

Shape suffixes: R texts, K outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pliant.cascade.artifact import LevelOutputs, Outputs, PrunedOutputs, Pruning
from pliant.cascade.prune import kept_words
from pliant.cascade.runtime import CascadeRuntime, Execution, Payload
from pliant.errors import InputError
from pliant.models.artifact import Classifier
from pliant.models.text import Reader, Reading, shorten
from pliant.progress import Progress, share, silent

Index = NDArray[np.int64]
Text = tuple[str, str | None]

PRUNINGS = (
    *(Pruning("mean", alpha) for alpha in (0.5, 0.6, 0.7, 0.8, 0.9)),
    *(Pruning("mass", mass) for mass in (0.95, 0.9, 0.8)),
)


@dataclass(frozen=True, slots=True)
class OutputsConfig:
    """Every pruning by every level is read by every level behind it. `batch`: texts run at once."""

    prunings: tuple[Pruning, ...] = PRUNINGS
    batch: int = 32
    execution: Execution = field(default_factory=Execution)

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise InputError("batch", self.batch, "at least 1")


def run_all(
    classifiers: Sequence[Classifier],
    data: Any,  # a `TextData` of training/text_data.py
    index: Index,
    config: OutputsConfig,
    device: str = "cpu",
    progress: Progress = silent,
    digests: Sequence[str] = (),
) -> Outputs:
    """Return the outputs of all levels, smallest first, for the texts of `index`, with the classifiers' `digests`.

    Raises `InputError` without texts or levels, and where levels have other classes than the data.
    """
    if not classifiers or not len(index):
        raise InputError("levels or texts", "none", "at least one of each")
    for classifier in classifiers:
        if classifier.classes != data.classes:
            known = len(classifier.classes)
            raise InputError(f"classes of {classifier.name}", known, f"the {len(data.classes)} of {data.name}")
    texts: list[Text] = data.texts(index)
    levels = [_Level(classifier, config, device) for classifier in classifiers]
    last, steps = len(levels) - 1, 2 * len(levels) - 1
    for number, level in enumerate(levels):
        level.read(texts, number < last, share(progress, 100 * number // steps, 100 * (number + 1) // steps))
    shortened: list[
        tuple[int, Pruning, list[Text], NDArray[np.float32]]
    ] = []  # (by which level, how, texts, kept share)
    pruned: list[PrunedOutputs] = []
    for number, level in enumerate(levels):
        if number:  # it reads what the levels before it shortened
            at = len(levels) + number - 1
            part = share(progress, 100 * at // steps, 100 * (at + 1) // steps)
            level.read([text for _, _, left, _ in shortened for text in left], False, part)
            pruned += [
                PrunedOutputs(pruner, number, pruning, *level.outputs(left), kept_R)
                for pruner, pruning, left, kept_R in shortened
            ]
        if number < last:
            shortened += [(number, pruning, *_shortened(level, texts, pruning)) for pruning in config.prunings]
    labels, names = data.labels[index].astype(np.float64), tuple(classifier.name for classifier in classifiers)
    whole = tuple(LevelOutputs(*level.outputs(texts)) for level in levels)
    precision = config.execution.precision
    return Outputs(
        data.name, data.classes, names, tuple(digests), labels, whole, tuple(pruned), data.fingerprint, precision
    )


class _Level:
    """One level and all that it has read so far, by text."""

    def __init__(self, classifier: Classifier, config: OutputsConfig, device: str) -> None:
        self._reader = Reader(classifier.tokenizer, classifier.max_length)
        self._runtime = CascadeRuntime({0: classifier}, device, config.execution)
        self._batch = config.batch
        self._logits: dict[Text, NDArray[np.float32]] = {}  # [K] each
        self._length: dict[Text, int] = {}
        self.importance: dict[Text, tuple[Reading, NDArray[np.float32]]] = {}  # with its reading; [N] each

    def read(self, texts: Sequence[Text], importance: bool, progress: Progress = silent) -> None:
        """Run the texts that are new, those of like length together."""
        fresh = [text for text in dict.fromkeys(texts) if text not in self._logits]
        readings = {text: self._reader.read(*text) for text in fresh}
        fresh.sort(key=lambda text: len(readings[text].ids))
        for start in range(0, len(fresh), self._batch):
            batch = fresh[start : start + self._batch]
            payloads: list[Payload] = [(readings[text].ids, readings[text].types) for text in batch]
            run = self._runtime.run(0, payloads, importance)
            for row, text in enumerate(batch):
                self._logits[text], self._length[text] = run.logits[row], len(readings[text].ids)
                if run.importance is not None:
                    self.importance[text] = readings[text], run.importance[row]
            progress(start + len(batch), len(fresh))
        if not fresh:
            progress(1, 1)

    def outputs(self, texts: Sequence[Text]) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
        """Return logits [R, K] and length [R] of texts that were read."""
        logits_RK = np.stack([self._logits[text] for text in texts])
        return logits_RK, np.array([self._length[text] for text in texts], dtype=np.int32)


def _shortened(level: _Level, texts: Sequence[Text], pruning: Pruning) -> tuple[list[Text], NDArray[np.float32]]:
    """Return the texts without what one level's importances prune, and [R] the share of each one's words that is left."""
    pairs: dict[Text, tuple[Text, float]] = {}
    for text in dict.fromkeys(texts):
        reading, importance = level.importance[text]
        kept_W = kept_words(importance, reading.words, pruning)
        left = text if kept_W.all() else shorten(*text, reading.spans, kept_W)
        pairs[text] = left, 1.0 if kept_W.all() else float(kept_W.mean())
    return [pairs[text][0] for text in texts], np.array([pairs[text][1] for text in texts], dtype=np.float32)
