"""What further texts are for: those without labels that the settings name, and those that a service kept. Knows no Prefect.

A text without a label teaches the small levels what the large model says of it, or the cascade is planned with it; which of
both, a digest of the text decides. A text that a service kept (`keep_inputs`) has a label where a tenant that may teach
reported it (flows/feedback.py): it is planned or judged with, and trained on only if `learn.levels` says so. A promise is
about the texts that come: as soon as there are `learn.rows` such texts to plan with, no others are. Those without labels are
only where the labelled ones are too few: a plan with them can promise no more than to agree with the large model, which
labels may show to be the worse one.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from pliant.errors import InputError
from pliant.flows.cascade.config import CascadeFlowConfig
from pliant.flows.feedback import DAY, FeedbackConfig, Lesson, kept_inputs, lessons, part_of, part_of_input, tenants
from pliant.labelling import Label, Text
from pliant.outcomes.files import KeptInput, read_labels
from pliant.outcomes.labels import LabelRecord, teachable
from pliant.training import groups
from pliant.training.groups import Split
from pliant.training.text_data import UNKNOWN, Index, TextData, is_text, with_rows

PLANNED = 2000  # texts of the settings that are planned with, at most
TEST_SHARE = 4  # a test needs a quarter of the rows that a plan needs
Row = tuple[str, str | None, float]
"""A text, the second one of a pair, and its label's number or value; NaN: nobody said it."""


@dataclass(frozen=True, slots=True)
class Texts:
    """The texts of a task. `data`: what its levels are trained on; `held`: what is planned with, its profiling split, and
    judged with, its test split; `unlabelled`: what is distilled from beside `data`; `slices`: those that the label of a text
    names, by `groups.key`.
    """

    data: TextData
    held: TextData
    unlabelled: tuple[Text, ...] = ()
    slices: Mapping[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)

    @property
    def named(self) -> list[tuple[str, ...]]:
        """The slices of each text of the test."""
        return [self.slices.get(groups.key(*text), ()) for text in self.held.texts(self.held.split.test)]


def apart(texts: Sequence[Text], data: TextData) -> tuple[Text, ...]:
    """Return the texts but for those with which the data plan or judge."""
    held = {groups.key(*text) for rows in (data.split.profiling, data.split.test) for text in data.texts(rows)}
    return tuple(text for text in texts if groups.key(*text) not in held)


def planned_without_labels(
    config: CascadeFlowConfig, data: TextData, texts: Sequence[Text]
) -> tuple[TextData, tuple[Text, ...]]:
    """Return the data set and the texts without labels that are left to distil from.

    Where there are enough of them to plan with, all labelled texts but those of the test train.
    """
    planning = [text for text in texts if part_of(repr(groups.key(*text))) != "fit"][:PLANNED]
    if data.regression or len(planning) < config.learn.rows:
        return data, tuple(texts)
    fit = np.concatenate([data.split.fit, data.split.profiling])
    rows, taken = [(*text, UNKNOWN) for text in planning], set(planning)
    whole = with_rows(data, rows, lambda new: replace(data.split, fit=fit, profiling=new))
    return whole, tuple(text for text in texts if text not in taken)


def texts_of(config: CascadeFlowConfig, data: TextData, unlabelled: Sequence[Text] = ()) -> Texts:
    """Return a task's texts with those that a service kept. Raises `InputError` for a file that cannot be read.

    A text that the data set has stays what it is there, and of equal ones the first that has a label counts.
    """
    parts: dict[str, list[Row]] = {name: [] for name in ("fit", "profiling", "test", "distil", "unlabelled")}
    slices: dict[tuple[str, ...], tuple[str, ...]] = {}
    for row, part, named in _kept(config, data):
        slices[groups.key(*row[:2])] = named
        if math.isnan(row[2]):
            parts["distil" if part == "fit" or data.regression else "unlabelled"].append(row)
        else:
            parts["profiling" if part == "fit" and not config.learn.levels else part].append(row)
    planning, test = parts["profiling"], parts["test"]
    if len(planning) < config.learn.rows <= len(planning) + len(parts["unlabelled"]):
        planning = planning + parts["unlabelled"]
    else:
        parts["distil"] += parts["unlabelled"]
    alone = len(planning) >= config.learn.rows
    kept = [(first, second) for first, second, _ in parts["distil"]]
    distil = tuple(dict.fromkeys([*unlabelled, *kept]))
    if not planning and not test:
        return Texts(data, data, distil)
    old = data.split

    def judged(rows: Index) -> Split:
        profiling, tested = np.split(rows, [len(planning)])
        kept = () if alone else (old.profiling,)
        tests = () if len(test) >= config.learn.rows / TEST_SHARE else (old.test,)
        return Split(old.fit[:0], np.concatenate([*kept, profiling]), np.concatenate([*tests, tested]))

    numbered = [(*row[:2], UNKNOWN if math.isnan(row[2]) else row[2]) for row in planning + test]
    held = with_rows(data, numbered, judged)
    brought = ("test", "profiling")
    fitted = with_rows(
        data, parts["fit"], lambda rows: replace(old, fit=np.concatenate([old.fit, rows]), brought=brought)
    )
    return Texts(fitted if parts["fit"] else data, held, apart(distil, held), slices)


def bought(held: TextData, labels: Sequence[Label]) -> tuple[tuple[int, int], ...]:
    """Return the labels that people gave, each with the place of its text in the profiling split.

    Raises `InputError` for a class that the task does not have.
    """
    given = {groups.key(label.first, label.second): label.label for label in labels}
    if unknown := [label for label in labels if label.label not in held.classes]:
        file = f"PLIANT_HOME/labels/{held.name}.jsonl"
        raise InputError(f"a label in {file}", repr(unknown[0].label), f"one of the classes: {', '.join(held.classes)}")
    keys = (groups.key(*text) for text in held.texts(held.split.profiling))
    places = ((place, given[key]) for place, key in enumerate(keys) if key in given)
    return tuple((place, held.classes.index(label)) for place, label in places)


def label_rows(config: FeedbackConfig, promised: Mapping[str, Mapping[str, float]]) -> list[dict[str, Any]]:
    """Return what the labels that may teach say of each level of each candidate, whether or not their texts were kept.

    `promised`: task -> candidate -> what the champion promises. The rows of a table, the most labels first. Raises
    `InputError` for a file that cannot be read.
    """
    if config.outcomes is None or not Path(config.outcomes).is_dir():
        return []
    records = read_labels(Path(config.outcomes), time.time() - DAY * config.days)
    grouped: dict[tuple[str, str, str, str], list[LabelRecord]] = {}
    # Labels that came unasked where others were wanted may be of wrong answers alone.
    records = [record for record in records if record.task in promised and record.weight]
    for record in teachable(records, tenants(config)):
        grouped.setdefault((record.task, str(record.version), record.candidate, record.level), []).append(record)
    return [
        {
            "task": task,
            "version": version,
            "candidate": candidate,
            "level": level,
            "labels": len(group),
            "accuracy": round(_mean([record.correct for record in group], group), 3),
            "confidence": round(_mean([record.confidence for record in group], group), 3),
            "promised": round(promised[task].get(candidate, math.nan), 3),
            "tenants": len({record.tenant for record in group}),
        }
        for (task, version, candidate, level), group in sorted(grouped.items(), key=lambda each: -len(each[1]))
    ]


def _mean(values: Sequence[float], records: Sequence[LabelRecord]) -> float:
    """Return the mean of one value for each label, by the answers that the label stands for."""
    return float(np.average(values, weights=[record.weight for record in records]))


def _kept(config: CascadeFlowConfig, data: TextData) -> Iterator[tuple[Row, str, tuple[str, ...]]]:
    """Yield the different texts that a service kept of the task and that the data set lacks, each with part and slices."""
    pair = data.second is not None

    def usable(lesson: Lesson) -> bool:
        return _texts(lesson.input, pair) is not None and _label(lesson.record.label, data.classes) is not None

    rows: dict[tuple[str, ...], tuple[Row, str, tuple[str, ...]]] = {}
    # Labels reach further back than the newest inputs where few answers are labelled.
    taught = [
        (lesson.input, label, lesson.record.slices)
        for lesson in lessons(config.feedback, data.name, usable)
        if (lesson.record.weight or (config.learn.levels and part_of_input(lesson.input) == "fit"))
        and (label := _label(lesson.record.label, data.classes)) is not None
    ]
    kept = ((each, math.nan, ()) for each in kept_inputs(config.feedback, data.name))
    for each, label, named in [*taught, *kept]:
        if (texts := _texts(each, pair)) is not None:
            rows.setdefault(groups.key(*texts), ((*texts, label), part_of_input(each), named))
    own = {
        groups.key(*text)
        for part in (data.split.fit, data.split.profiling, data.split.test)
        for text in data.texts(part)
    }
    yield from (row for key, row in rows.items() if key not in own)


def _texts(kept: KeptInput, pair: bool) -> tuple[str, str | None] | None:
    if kept.form != "json":
        return None
    try:
        texts = json.loads(kept.content)
    except ValueError:
        return None
    if not isinstance(texts, list) or len(texts) != 1 + pair or not all(map(is_text, texts)):
        return None
    return texts[0], texts[1] if pair else None


def _label(label: str | float, classes: Sequence[str]) -> float | None:
    if classes:
        return float(classes.index(str(label))) if str(label) in classes else None
    return float(label) if not isinstance(label, str) and math.isfinite(label) else None
