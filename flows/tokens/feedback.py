"""What tokens learns from: pictures that a service kept, with the classes that its clients reported (flows/feedback.py)."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection

import numpy as np

from pliant.flows.feedback import FeedbackConfig, Lesson, lessons, part_of_input
from pliant.outcomes.files import KeptInput
from pliant.training.data import ImageData
from pliant.training.tokens import labelled
from pliant.training.tokens.labelled import LabelledPicture

logger = logging.getLogger("pliant")

FORM = re.compile(r"uint8 ([1-9]\d{0,4}) ([1-9]\d{0,4}) 3")


def with_lessons(config: FeedbackConfig, data: ImageData, held_out: float) -> ImageData:
    """Return the task's data with the pictures that may teach it; the very same data where there are none.

    `held_out`: share of the fit split on which trials are judged. Raises `InputError` for a file that cannot be read.
    """
    learnt = lessons(config, data.name, lambda lesson: is_usable(lesson, data.classes))
    joined = labelled.join(data, [_picture(lesson) for lesson in learnt], held_out)
    if learnt:
        logger.info("task %s learns from labelled pictures: %s", data.name, labelled.counts(data, joined))
    return joined


def is_usable(lesson: Lesson, classes: Collection[str]) -> bool:
    """Whether what was kept is a picture, and the label a class of the task."""
    size = _size(lesson.input)
    return size is not None and len(lesson.input.content) == 3 * size[0] * size[1] and lesson.record.label in classes


def _size(kept: KeptInput) -> tuple[int, int] | None:
    """Return height and width of a picture, None for anything else."""
    form = FORM.fullmatch(kept.form)
    return (int(form[1]), int(form[2])) if form else None


def _picture(lesson: Lesson) -> LabelledPicture:
    size = _size(lesson.input)
    assert size is not None
    pixels_HW3 = np.frombuffer(lesson.input.content, np.uint8).reshape(*size, 3)
    return LabelledPicture(pixels_HW3, str(lesson.record.label), part_of_input(lesson.input))
