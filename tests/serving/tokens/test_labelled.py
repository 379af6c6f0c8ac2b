"""Labels of answers of tokens: over HTTP, by operating point, and what an answer to one costs."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from pliant.outcomes.files import read_inputs, read_labels
from pliant.serving.loop.observe import DriftCounter, Observer
from pliant.serving.loop.outcomes import open_outcomes
from pliant.serving.tokens.catalog import ALLOWANCE, Origin, promised, promised_of
from pliant.serving.tokens.endpoint import EVERY, LINES, NAMES, Pictures, kept, kind_of, statistics
from pliant.serving.tokens.settings import TokensSettings
from tests.fixtures.observed import observed
from tests.fixtures.tokens.http import ask, png
from tests.fixtures.tokens.samples import tiny_task
from tests.serving.tokens.test_oip import ask as infer
from tests.serving.tokens.test_oip import byte_tensor
from tests.serving.tokens.test_oip import infer as send

ORIGIN = Origin(("zero", "one"), {"backbone": 1, "task": 3}, promised={0: 0.9, -5: 0.8})


async def test_an_answer_has_an_id_and_takes_the_right_class(service):
    answers = [(await ask(service)).json() for _ in range(2)]
    ids = [answer["id"] for answer in answers]
    assert len(set(ids)) == 2 and all(len(id) == 32 for id in ids)
    taken = (await service.client.post("/outcomes", json={"id": ids[0], "label": "one"})).json()
    about = {"id": ids[0], "task": "digits", "version": 1, "operating_point": "0", "correct": False}
    assert about.items() <= taken.items() and not taken["repeated"]
    assert (await service.client.post("/outcomes", json={"id": ids[0], "label": "one"})).json()["repeated"]
    many = await service.client.post(
        "/outcomes", json=[{"id": id, "label": "zero"} for id in (ids[1], "unknown", ids[0])]
    )
    content = many.json()
    assert (many.status_code, content["taken"], content["refused"]) == (200, 1, 2)
    codes = [entry["error"]["code"] for entry in content["outcomes"] if "error" in entry]
    assert codes == ["unknown_id", "other_label"]
    wrong = await service.client.post("/outcomes", json={"id": ids[1], "label": "seven"})
    assert wrong.status_code == 422 and "must be one of zero, one, two" in wrong.text
    (figures,) = (await service.client.get("/status")).json()["outcomes"]
    assert (figures["operating_point"], figures["labels"], figures["accuracy"]) == ("0", 2, 0.5)
    assert (figures["confidence"], figures["calibration_error"]) == (0.75, 0.25)
    values = {"task": "digits", "operating_point": "0"}
    count = service.counted.get_sample_value("pliant_labels_total", {**values, "correct": "false"})
    assert count == 1
    assert service.counted.get_sample_value("pliant_calibration_error", {**values, "version": "1"}) == 0.25


async def test_under_the_open_inference_protocol_an_answer_has_the_id_of_its_request(service):
    for id, count in (("mine", 1), ("two", 2), (None, 1), ("", 1)):
        entry, data = byte_tensor("image", *[png()] * count)
        response = await send(service, {"inputs": [entry], **({} if id is None else {"id": id})}, data)
        assert response.status_code == 200
    expected = {"mine": 200, "two": 404, "two/0": 200, "two/1": 200, "two/2": 404, "mine/0": 404}
    for id, status in expected.items():
        response = await service.client.post("/outcomes", json={"id": id, "label": "zero"})
        assert response.status_code == status, id
    assert len(service.outcomes.tracker) == 3, "without an id nothing is remembered"
    response = await service.client.post("/outcomes", json={"id": "mine", "label": "zero"})
    assert response.json()["id"] == "mine"


def test_the_promise_is_two_points_below_the_lower_of_two_measured_shares():
    assert promised_of(0.9, 0.88) == pytest.approx(0.88 - ALLOWANCE)
    assert promised_of(0.9, None) == pytest.approx(0.88)
    assert promised_of(0.01, 0.5) == 0.0
    task = replace(tiny_task("digits", ["a", "b"], "0" * 64), accuracy={0: 0.9, 2: 0.95}, test_accuracy={0: 0.91})
    assert promised(task) == pytest.approx({0: 0.88, 2: 0.93})


def test_pixels_are_kept_only_where_the_settings_say_so_and_found_by_their_labels(tmp_path):
    pixels = np.arange(4 * 4 * 3, dtype=np.uint8).reshape(4, 4, 3)
    for keep in (False, True):
        outcomes = open_outcomes(TokensSettings(home=tmp_path, keep_inputs=keep), CollectorRegistry(), NAMES)
        metrics = SimpleNamespace(answered=lambda _: None)
        one = observed("one", 0.5, task="t", id="x", kind=kind_of("t", ORIGIN, 0, ""))
        Observer(metrics, DriftCounter(), outcomes).observe(one, partial(kept, pixels))
        if keep:
            outcomes.take("x", "one")
        outcomes.close()
        folder = tmp_path / "outcomes" / "tokens"
        assert (folder / "inputs.db").exists() is keep
    (record,) = read_labels(folder)
    (entry,) = read_inputs(folder, {record.id})
    assert (record.candidate, record.confidence, record.predicted) == ("0", 0.5, "one")
    kind, *shape = entry.form.split()
    np.testing.assert_array_equal(np.frombuffer(entry.content, kind).reshape([int(size) for size in shape]), pixels)


async def test_an_answer_that_is_late_or_refused_is_not_remembered(service):
    assert (await ask(service, utility=0.125)).status_code == 429
    assert (await infer(service, png())).status_code == 200
    assert len(service.outcomes.tracker) == 0


def test_one_picture_of_four_is_looked_at():
    pictures = Pictures()
    looks = [[each.stream for each in pictures.readings("pets", np.zeros((8, 8, 3), np.uint8))] for _ in range(8)]
    assert looks == ([["brightness of pets", "sharpness of pets"]] + [[]] * (EVERY - 1)) * 2


@pytest.mark.parametrize("size", [8, 64, 127, 128, 224, 400])
def test_a_sample_of_whole_rows_and_columns_has_the_statistics_of_the_picture(size):
    rng = np.random.default_rng(size)
    waves_HW = 120 + 60 * np.sin(np.arange(size) / 3)[:, None] * np.cos(np.arange(size) / 5)
    green_HW = (waves_HW + rng.uniform(-8, 8, (size, size))).astype(np.uint8)
    pixels_HW3 = np.stack([np.zeros_like(green_HW), green_HW, green_HW], axis=2)
    differences = [np.abs(np.diff(green_HW.astype(float), axis=axis)).mean() for axis in (0, 1)]
    near = {"rel": 0.03} if size >= 2 * LINES else {}
    assert statistics(pixels_HW3) == pytest.approx((green_HW.mean(), np.mean(differences)), **near)


def test_blur_lowers_and_noise_raises_the_difference_of_neighbours():
    rng = np.random.default_rng(0)
    sharp_HW3 = rng.integers(60, 180, (224, 224, 3))
    blurred_HW3 = (sharp_HW3 + np.roll(sharp_HW3, 1, axis=0) + np.roll(sharp_HW3, 1, axis=1)) // 3
    noisy_HW3 = sharp_HW3 + rng.integers(-40, 40, sharp_HW3.shape)
    blurred, sharp, noisy = (statistics(each.astype(np.uint8))[1] for each in (blurred_HW3, sharp_HW3, noisy_HW3))
    assert blurred < 0.7 * sharp and noisy > 1.05 * sharp
