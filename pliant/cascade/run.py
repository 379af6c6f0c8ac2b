"""Runs a cascade offline: one text after the other, one level after the other, as the service does but without queues.

For clients of the registry, and as a reference for tests. Knows no deadlines and no batches.

Shape suffixes: R texts, K numbers of an answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pliant.cascade.artifact import Bag, Candidate, Cascade, Exit, Gate, Level
from pliant.cascade.bag import BagModel
from pliant.cascade.evaluate import done, draws
from pliant.cascade.knowledge import numbers, trunk_of
from pliant.cascade.prune import kept_words
from pliant.cascade.route import answers as route_answers
from pliant.cascade.route import combine, confidence, judge
from pliant.cascade.runtime import CascadeRuntime, Execution, Part
from pliant.errors import ArtifactError, InputError
from pliant.models.artifact import Classifier
from pliant.models.text import Reader, Reading, shorten
from pliant.precision import FLOAT32, is_fast

Text = tuple[str, str | None]
"""A text and, for a pair, its second one."""


@dataclass(frozen=True, slots=True)
class Models:
    """A cascade's levels, ready to run: their readers, its bags by level, and one runtime of all others."""

    readers: tuple[Reader, ...]
    bags: Mapping[int, BagModel]
    runtime: CascadeRuntime


@dataclass(frozen=True, slots=True)
class Answered:
    """A cascade's answer to one text."""

    label: str | float  # a class, or a regression's value
    confidence: float  # the calibrated probability that the label is correct
    level: int  # the one that ran last
    answer: NDArray[np.float64]  # [K] see pliant/cascade/route.py
    lengths: tuple[int, ...]  # tokens that each level read, of those that ran
    read: Text  # the words that the last level was given
    truncated: bool  # whether some level read less than it was given


@dataclass(frozen=True, slots=True)
class _Step:
    """One level's run over one text."""

    reading: Reading
    answer_RK: NDArray[np.float64]  # of one row
    importance: NDArray[np.float32] | None  # [N]


def load(cascade: Cascade, levels: Sequence[Level], device: str = "cpu") -> Models:
    """Load the artifacts of the cascade's levels, in order. Raises `ArtifactError` if they are others.

    They compute in the cascade's precision, or in float32 on a device without instructions for it.
    """
    names, given = [level.name for level in cascade.levels], [level.name for level in levels]
    if names != given:
        raise ArtifactError(
            f"the cascade {cascade.task} has the levels {', '.join(names)}, but was given {', '.join(given)}"
        )
    precision = cascade.precision if is_fast(cascade.precision, device) else FLOAT32
    trunks = [trunk_of(cascade, levels, number) for number in range(len(levels))]
    parts = {}
    for (_, level, layers), number in numbers([cascade]).items():
        trunk, end = trunks[level], levels[level]
        assert isinstance(trunk, Classifier), "only a bag is no part of a classifier"
        parts[number] = Part(trunk, layers, end if isinstance(end, Exit) else None)
    return Models(
        tuple(Reader(trunk.tokenizer, trunk.max_length) for trunk in trunks),
        {number: BagModel(level) for number, level in enumerate(levels) if isinstance(level, Bag)},
        CascadeRuntime(parts, device, Execution(precision)),
    )


def run(
    cascade: Cascade,
    models: Models,
    texts: Sequence[Text],
    candidate: int = 0,
    draw_R: NDArray[np.float64] | None = None,
) -> list[Answered]:
    """Return the answer of a candidate (by number) to each text, in order.

    `draw_R`: a uniform number in [0, 1) for each text, which only "tabi" gates use; None: those of `evaluate.draws`.
    Raises `InputError` for an unknown candidate, and for a pair where the task takes one text or the reverse.
    """
    if not 0 <= candidate < len(cascade.candidates):
        raise InputError("candidate", candidate, f"from 0 to {len(cascade.candidates) - 1}")
    chosen = cascade.candidates[candidate]
    draw_R = draws(len(texts)) if draw_R is None else draw_R
    return [_answer(cascade, models, text, chosen, draw_R[i : i + 1]) for i, text in enumerate(texts)]


def _answer(
    cascade: Cascade, models: Models, text: Text, candidate: Candidate, draw_1: NDArray[np.float64]
) -> Answered:
    if (text[1] is not None) != cascade.pair:
        given, wanted = ("single", "a pair of texts") if cascade.pair else ("a pair", "one text")
        raise InputError("text", given, f"{wanted}, as the task {cascade.task} takes")
    first, *rest = candidate.levels
    steps = [_step(cascade, models, candidate.levels[:1], text, candidate.gates[:1])]
    answers, level = [steps[0].answer_RK], first
    for number, following in enumerate(rest):
        gate, length_R = candidate.gates[number], np.array([len(steps[-1].reading.ids)])
        if np.isnan(judge(gate, answers, length_R, draw_1, not cascade.classes, cascade.tolerance)[0]):
            break
        former = steps[-1]
        if former.importance is not None:
            kept_W = kept_words(former.importance, former.reading.words, gate.pruning)
            text = shorten(*text, former.reading.spans, kept_W)
        steps.append(
            _step(cascade, models, candidate.levels[: number + 2], text, candidate.gates[number + 1 : number + 2])
        )
        level = following
        answers.append(combine(gate, answers[-1], steps[-1].answer_RK))
    answer_RK = answers[-1]
    lengths = tuple(len(step.reading.ids) for step in steps)
    truncated = any(step.reading.truncated for step in steps)
    sure = float(confidence(answer_RK, not cascade.classes)[0])
    label = cascade.classes[int(answer_RK[0].argmax())] if cascade.classes else float(answer_RK[0, 0])
    return Answered(label, sure, level, answer_RK[0], lengths, text, truncated)


def _step(cascade: Cascade, models: Models, path: Sequence[int], text: Text, gates: Sequence[Gate]) -> _Step:
    """Run the last level of a path. `gates`: the gate behind it, if there is one; if that prunes, importance is measured."""
    *former, level = path
    reading = models.readers[level].read(*text)
    length_R, importance = np.array([len(reading.ids)]), None
    if level in models.bags:
        logits = models.bags[level].logits(reading.ids, reading.types)
    else:
        pruning = any(gate.pruning.rule != "none" for gate in gates)
        number = numbers([cascade])[cascade.task, level, done(cascade.levels, former, level)]
        ran = models.runtime.run(number, [(reading.ids, reading.types)], pruning)
        logits, importance = ran.logits[0], ran.importance[0] if ran.importance is not None else None
    answer_RK = route_answers(cascade.levels[level], cascade.tolerance, np.asarray(logits)[None], length_R)
    return _Step(reading, answer_RK, importance)
