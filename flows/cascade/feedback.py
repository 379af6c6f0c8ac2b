"""What labelled answers of a service teach: rows to plan and judge with, and figures of the labels alone. Knows no Prefect.

A lesson's text was kept by the service (`keep_inputs`) and labelled by a tenant that may teach (flows/feedback.py). Levels
are not trained on it unless `learn.levels` says so; temperatures, gains, thresholds and promise are planned anew with it.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pliant.cascade.artifact import Outputs
from pliant.cascade.evaluate import mark, pooled
from pliant.flows.cascade.config import CascadeFlowConfig, LearnConfig
from pliant.flows.feedback import DAY, FeedbackConfig, Lesson, lessons, part_of_input, tenants
from pliant.flows.stage import Notes, Stage, StageResult
from pliant.outcomes.files import read_labels
from pliant.outcomes.labels import LabelRecord, teachable
from pliant.progress import Progress
from pliant.training import groups
from pliant.training.groups import Split
from pliant.training.text_data import TextData, assemble, is_text, with_fit

TEST_SHARE = 4  # a test has a quarter of the rows that a plan has: lessons are split like that
Row = tuple[str, str | None, float, str]
"""A text, the second one of a pair, the label's number or value, and the part of the data that it belongs to."""


def taught(config: CascadeFlowConfig, data: TextData) -> TextData | None:
    """Return what labelled answers teach of a task; None: nothing. Raises `InputError` for a file that cannot be read."""
    return rows_of(
        lessons(config.feedback, data.name, lambda lesson: _row(lesson, data) is not None), data, config.learn
    )


def rows_of(lessons: Sequence[Lesson], data: TextData, learn: LearnConfig) -> TextData | None:
    """Return the lessons of a task as a data set of its classes; None where none can plan or none can judge.

    Those of the part "fit" train the levels if `learn.levels`, and else plan as well. A lesson that does not fit the task
    (another number of texts, an unknown class) is left out, and so is one to plan or judge with whose text the data set
    trains on: of that the levels are surer than of new texts. Equal texts are in the part of the first of them.
    """
    trained = {groups.key(*texts) for texts in data.texts(data.split.fit)}
    fitting = [row for lesson in lessons if (row := _row(lesson, data)) is not None]
    rows = [row for row in fitting if (row[3] == "fit" and learn.levels) or groups.key(*row[:2]) not in trained]
    group_R = groups.of_texts((row[0] for row in rows), (row[1] for row in rows))
    part_R = [rows[first][3] for first in groups.firsts(group_R)[group_R]]
    fit = [number for number, part in enumerate(part_R) if part == "fit" and learn.levels]
    test = [number for number, part in enumerate(part_R) if part == "test"]
    planning = sorted(set(range(len(rows))) - {*fit, *test})
    if not planning or not test:
        return None
    split = Split(*(np.array(part, dtype=np.int64) for part in (fit, planning, test)))
    labels: NDArray[Any] = np.array([row[2] for row in rows])
    second = None if data.second is None else [row[1] or "" for row in rows]
    labels = labels.astype(np.int64) if data.classes else labels
    return assemble(data.name, [row[0] for row in rows], second, labels, data.classes, split)


def training_data(data: TextData, lessons: TextData | None) -> TextData:
    """Return what the levels are trained on: the data set itself, unless lessons are to train them as well."""
    return data if lessons is None or not len(lessons.split.fit) else with_fit(data, lessons)


def make_pool(
    config: CascadeFlowConfig,
    task: str,
    split: str,
    old: StageResult[Outputs],
    new: StageResult[Outputs],
    progress: Progress,
) -> tuple[Outputs, Notes]:
    """Join the task's outputs on the data set with those on the lessons."""
    del task  # which names the stage
    progress(0, 1)
    before, after = old.load(), new.load()
    data = mark(before.data, after.data, config.learn.rows, config.seed)
    rows = config.learn.rows if split == "profiling" else config.learn.rows // TEST_SHARE  # filled up with old ones
    return pooled(before, after, rows, config.seed, data), {}


POOL = Stage(
    "pool",
    Outputs,
    make_pool,
    lambda config: {"rows": config.learn.rows, "seed": config.seed},
    "cascade/pooled-{task}-{split}",
    "{task}: old and labelled texts, {split}",
    run="pool-{split}",
)


def label_rows(config: FeedbackConfig, promised: Mapping[str, Mapping[str, float]]) -> list[dict[str, Any]]:
    """Return what the labels that may teach say of each level of each candidate, whether or not their texts were kept.

    `promised`: task -> candidate -> what the champion promises. The rows of a table, the most labels first. Raises
    `InputError` for a file that cannot be read.
    """
    if config.outcomes is None or not Path(config.outcomes).is_dir():
        return []
    records = read_labels(Path(config.outcomes), time.time() - DAY * config.days)
    grouped: dict[tuple[str, str, str, str], list[LabelRecord]] = {}
    for record in teachable([record for record in records if record.task in promised], tenants(config)):
        grouped.setdefault((record.task, str(record.version), record.candidate, record.level), []).append(record)
    return [
        {
            "task": task,
            "version": version,
            "candidate": candidate,
            "level": level,
            "labels": len(group),
            "accuracy": round(float(np.mean([record.correct for record in group])), 3),
            "confidence": round(float(np.mean([record.confidence for record in group])), 3),
            "promised": round(promised[task].get(candidate, math.nan), 3),
            "tenants": len({record.tenant for record in group}),
        }
        for (task, version, candidate, level), group in sorted(grouped.items(), key=lambda each: -len(each[1]))
    ]


def _row(lesson: Lesson, data: TextData) -> Row | None:
    texts, label = _texts(lesson, data.second is not None), _label(lesson.record.label, data.classes)
    return None if texts is None or label is None else (*texts, label, part_of_input(lesson.input))


def _texts(lesson: Lesson, pair: bool) -> tuple[str, str | None] | None:
    if lesson.input.form != "json":
        return None
    try:
        texts = json.loads(lesson.input.content)
    except ValueError:
        return None
    if not isinstance(texts, list) or len(texts) != 1 + pair or not all(map(is_text, texts)):
        return None
    return texts[0], texts[1] if pair else None


def _label(label: str | float, classes: Sequence[str]) -> float | None:
    if classes:
        return float(classes.index(str(label))) if str(label) in classes else None
    return float(label) if not isinstance(label, str) and math.isfinite(label) else None
