"""The tokens model in its device process: outputs name their origin, and images of a former size are resized."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pliant.errors import DeviceError, InputError
from pliant.fallbacks import Collector, Fallback
from pliant.registry import codec
from pliant.serving.tokens.catalog import ServedTask, TokensBuild
from pliant.serving.tokens.device import build
from pliant.serving.workers.devices import DevicePlan
from pliant.tokens.points import Point
from pliant.tokens.runtime import TokensRuntime
from tests.fixtures.processor import NEEDS_BFLOAT16
from tests.fixtures.tokens.samples import POINTS, random_images, tiny_backbone, tiny_task, with_points

PLAN = DevicePlan("cpu", 1, None, (1, 2))


@pytest.fixture
def told(tmp_path):
    digest = codec.save(tiny_backbone(), tmp_path / "backbone")
    tasks = [served(name, digest, seed) for seed, name in enumerate(("digits", "shapes"))]
    return TokensBuild(tmp_path / "backbone", digest, tuple(tasks), (0, 4), PLAN)


def served(name: str, digest: str, seed: int) -> ServedTask:
    return ServedTask(tiny_task(name, ["a", "b", "c"], digest, seed), 1, f"digest of {name} {seed}")


def test_an_output_names_task_and_backbone(told):
    model = build(told)
    images = random_images(2)
    outputs, _ = model.run(4, [("shapes", images[0]), ("digits", images[1])])
    assert [output[:2] for output in outputs] == [
        ("digest of shapes 1", told.digest),
        ("digest of digits 0", told.digest),
    ]
    model.update(served("digits", told.digest, 7))
    assert model.run(4, [("digits", images[1])])[0][0][0] == "digest of digits 7"


def test_every_shape_runs_before_the_first_request(told, monkeypatch):
    ran, run = set(), TokensRuntime.run
    monkeypatch.setattr(
        TokensRuntime, "run", lambda self, gamma, images: ran.add((gamma, len(images))) or run(self, gamma, images)
    )
    build(told)
    assert ran == {(gamma, batch) for gamma in (0, 4) for batch in (1, 2)}


def test_operating_points_are_served_beside_gammas_and_a_task_of_other_points_is_refused(told):
    tasks = [ServedTask(with_points(served.task), 1, served.digest) for served in told.tasks]
    model = build(replace(told, tasks=tuple(tasks), gammas=(0, *POINTS), points=POINTS))
    images = [("shapes", random_images(1)[0]), ("digits", random_images(1)[0])]
    answers = [[row.tolist() for *_, row in model.run(setting, images)[0]] for setting in (0, *POINTS)]
    assert len({str(answer) for answer in answers}) == 3
    other = replace(tasks[0].task, points={**POINTS, 101: Point(16, 1)})
    with pytest.raises(InputError, match=r"task digits is with other operating points \[101\]"):
        model.update(ServedTask(other, 2, "other"))
    with pytest.raises(InputError, match="task digits is without gamma"):
        model.update(served("digits", told.digest, 3))


def test_an_image_of_another_size_is_answered_as_the_same_picture(told):
    model = build(told)
    image = np.full((16, 16, 3), 90, np.uint8)
    image[4:12, 4:12] = 200
    twice = image.repeat(2, axis=0).repeat(2, axis=1)
    (same, *_), _ = model.run(0, [("digits", image)])
    (resized, *_), _ = model.run(0, [("digits", twice)])
    assert resized[2].argmax() == same[2].argmax()
    np.testing.assert_allclose(resized[2], same[2], atol=0.1)


def test_a_device_without_the_precision_of_the_profile_serves_float32_and_says_so(told, monkeypatch):
    monkeypatch.setattr("pliant.serving.workers.on_device.is_fast", lambda precision, device: False)
    collector = Collector()
    build(replace(told, precision="bfloat16"))
    reason = "the backbone computes in float32, as cpu has no instructions for bfloat16"
    assert collector.take() == (Fallback("precision", reason),)


@NEEDS_BFLOAT16
def test_the_model_computes_in_the_precision_of_the_profile(told):
    image = random_images(1)[0]
    exact, half = (
        build(replace(told, precision=p)).run(0, [("digits", image)])[0][0][2] for p in ("float32", "bfloat16")
    )
    assert 0 < np.abs(exact - half).max() < 0.1


def test_another_class_of_device_than_the_profiles_is_refused(told):
    plan = DevicePlan("cpu", 1, "a large GPU", (1,))
    with pytest.raises(DeviceError, match="the profile was measured on a large GPU"):
        build(TokensBuild(told.folder, told.digest, told.tasks, told.gammas, plan))
