"""Which reported pictures become a task's data, and that strangers and broken files change nothing of it."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.errors import InputError
from pliant.flows.feedback import FeedbackConfig
from pliant.flows.stage import StageResult
from pliant.flows.tokens.config import read
from pliant.flows.tokens.stages import FOUNDATION, TASK, load_upstream, with_lessons
from pliant.outcomes.files import INPUTS
from pliant.tokens.artifact import Backbone
from pliant.training.data import ImageData, digits
from pliant.training.tokens.labelled import counts
from tests.fixtures.tokens.reported import TRUSTED, blurred, report, report_blurred
from tests.fixtures.tokens.tiny import setting

BACKBONE = StageResult(Backbone, None, "tokens/backbone/x", "sha256:b")
HELD_OUT = 0.2


@pytest.fixture(scope="module")
def data() -> ImageData:
    return digits("digit")


def learnt(folder, data: ImageData, **more) -> ImageData:
    return with_lessons(FeedbackConfig(str(folder), TRUSTED, **more), data, HELD_OUT)


def test_a_trusted_tenants_pictures_are_in_the_data_with_their_labels(tmp_path, data):
    joined = learnt(report_blurred(tmp_path, data, range(60)), data)
    assert sum(counts(data, joined).values()) == 60
    labels = {blurred(data, row).tobytes(): data.labels[row] for row in range(60)}
    for row in range(len(data.images), len(joined.images)):
        assert labels[joined.images.batch(np.array([row]), 16).tobytes()] == joined.labels[row]


def test_a_picture_keeps_the_slices_of_its_label(tmp_path, data):
    report_blurred(tmp_path, data, range(60), [TRUSTED, "acme"])
    joined = with_lessons(FeedbackConfig(str(tmp_path), f"{TRUSTED},acme"), data, HELD_OUT)
    tenant = {blurred(data, row).tobytes(): f"the tenant {(TRUSTED, 'acme')[row % 2]}" for row in range(60)}
    assert min(joined.slices) == len(data.images) and len(joined.slices) == 60
    for row, named in joined.slices.items():
        label = joined.classes[joined.labels[row]]
        pixels = joined.images.batch(np.array([row]), 16).tobytes()
        assert named == (f"the class {label}", tenant[pixels])


def test_the_foundation_keeps_its_key_and_the_task_does_not(tmp_path, data):
    joined = learnt(report_blurred(tmp_path, data, range(60)), data)
    config = read(overrides=setting())
    assert TASK.key(config, joined, BACKBONE) != TASK.key(config, data, BACKBONE)
    assert FOUNDATION.key(config, load_upstream(config, [data])) == FOUNDATION.key(config, data)


@pytest.mark.parametrize(
    "picture",
    [
        np.zeros((16, 16), np.uint8),
        np.zeros((16, 16, 4), np.uint8),
        np.zeros((0, 16, 3), np.uint8),
        np.zeros((16, 16, 3), np.float32),  # four times the bytes that its form says
    ],
)
def test_what_is_no_picture_is_passed_over(tmp_path, data, picture):
    report_blurred(tmp_path, data, range(50))
    report(tmp_path, [picture], ["1"])
    assert sum(counts(data, learnt(tmp_path, data)).values()) == 50


def test_a_torn_file_of_inputs_is_an_error(tmp_path, data):
    path = report_blurred(tmp_path, data, range(50)) / INPUTS
    path.write_bytes(path.read_bytes()[:6000])
    with pytest.raises(InputError, match=r"inputs\.db"):
        learnt(tmp_path, data)
