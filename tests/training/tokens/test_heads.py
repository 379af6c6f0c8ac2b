"""Heads: what is served is what was judged, fitted on the fit split alone, also where there is little to fit on."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.errors import InputError
from pliant.flows.tokens.config import read
from pliant.flows.tokens.stages import with_gains
from pliant.profiling.tokens.accuracy import compare, profile, right_of
from pliant.tokens.points import CLASS
from pliant.tokens.runtime import Execution, Payload, TokensRuntime
from pliant.training import data
from pliant.training.tokens.heads import NEVER, fit
from pliant.training.tokens.task import TaskConfig, train
from tests.fixtures.tokens.samples import WIDTH, tiny_backbone
from tests.fixtures.watched import watched

FLOAT32 = Execution(precision="float32")


@pytest.fixture(scope="module")
def trained():
    """A task with operating points, its data, and the rows that training looked at."""
    loops, seen = watched(data.digits("loops"))
    config = TaskConfig(gammas=(), head_steps=50, head_images=300, precision="float32")
    return train(config, loops, tiny_backbone(), "digest"), loops, set(seen)


def test_every_point_has_a_head_of_what_it_reads_fitted_on_the_fit_split_alone(trained):
    task, loops, seen = trained
    assert seen == set(loops.split.fit[:300].tolist())
    assert task.points and set(task.heads) == set(task.judged) == {0, *task.points}
    assert all(
        task.heads[number].weight.shape[1] == WIDTH * (1 + (point.reads == "both"))
        for number, point in task.points.items()
    )


def test_what_is_served_at_a_point_is_what_was_measured(trained):
    task, loops, _ = trained
    measured = profile(tiny_backbone(), task, loops, gammas=(0,), limit=40)
    rows = loops.split.profiling[:40]
    for number in (0, *task.points):
        assert right_of(tiny_backbone(), task, loops, number, limit=40).mean() == measured.accuracy[number]
    runtime = TokensRuntime(tiny_backbone(), "digest", [task], "cpu", FLOAT32, task.points)
    payloads = [Payload("loops", image) for image in loops.images.batch(rows, 16)]
    for number, point in task.points.items():
        feature_ND = runtime.features_at(loops.images.batch(rows, 16), point, (point.blocks,))[0]
        logit_NK = feature_ND @ task.heads[number].weight.T + task.heads[number].bias
        share_NK = np.exp(logit_NK - logit_NK.max(1, keepdims=True))
        share_NK /= share_NK.sum(1, keepdims=True)
        np.testing.assert_allclose(runtime.run(number, payloads).probabilities, share_NK, atol=1e-4)


def test_the_better_regression_is_taken_and_its_outputs_are_probabilities():
    rng = np.random.default_rng(0)
    feature_NF, label_N = rng.standard_normal((400, 8)).astype(np.float32), rng.integers(0, 4, 400)
    feature_NF[:, :4] += 2 * np.eye(4, dtype=np.float32)[label_N]
    fitted = fit(feature_NF, label_N, 4, 0.2, 100)
    logit_NK = feature_NF @ fitted.head.weight.T + fitted.head.bias
    assert fitted.judged > 0.8 and (logit_NK.argmax(1) == label_N).mean() > 0.8
    share_NK = np.exp(logit_NK) / np.exp(logit_NK).sum(1, keepdims=True)
    assert abs(share_NK.max(1).mean() - (logit_NK.argmax(1) == label_N).mean()) < 0.08


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("each", [1, 3])
def test_a_few_pictures_a_class_are_enough_and_a_class_without_any_is_never_the_answer(classes, each):
    label_N = np.repeat(np.arange(classes), each)
    feature_NF = np.eye(classes, dtype=np.float32)[label_N]
    head = fit(feature_NF, label_N, classes + 1, 0.2, 20).head
    logit_NK = feature_NF @ head.weight.T + head.bias
    assert (logit_NK[:, :classes].argmax(1) == label_N).all() and (logit_NK[:, classes] < NEVER / 1000).all()


def test_a_gain_is_one_where_its_interval_excludes_none():
    none, every = np.zeros(100, bool), np.ones(100, bool)
    assert compare(every, every, 0.95).low == compare(every, every, 0.95).high == 0.0
    better = compare(every, none, 0.95)
    assert better.gain == 1.0 and better.low > 0.9
    mixed = none.copy()
    mixed[:6] = True  # 6 of 6 that differ: p = 0.031; 5 of 5: p = 0.062
    assert compare(mixed, none, 0.95).low > 0 > compare(none, mixed, 0.95).high
    mixed[0] = False
    assert compare(mixed, none, 0.95).low < 0 < compare(mixed, none, 0.95).gain


def test_shallow_prompts_and_lora_are_trained_served_and_judged_beside_deep_ones():
    loops, backbone = data.digits("loops"), tiny_backbone()
    config = TaskConfig(
        gammas=(2,), shallow=(3,), lora=(2,), epochs=0.05, head_images=200, points=False, precision="float32"
    )
    task = train(config, loops, backbone, "digest")
    assert {setting: value.shape for setting, value in task.prompts.items()} == {
        2: (2, 2, WIDTH),
        23: (1, 3, WIDTH),
        62: (2, 2, 4 * WIDTH),
    }
    assert task.prompts[62][..., WIDTH:].any(), "LoRA begins as nothing, and has learnt"
    measured = profile(backbone, task, loops, gammas=(0, 2, 23, 62), limit=40)
    assert {setting: right_of(backbone, task, loops, setting, limit=40).mean() for setting in (0, 2, 23, 62)} == (
        measured.accuracy
    )
    _, tried = with_gains(read(overrides={"measured": 40}), backbone, task, loops)
    assert [each["gamma"] for each in tried] == [2, 23, 62]
    with pytest.raises(InputError, match=r"task.lora is \[41\], but must be numbers from 1 to 40"):
        TaskConfig(lora=(41,))


def test_prompts_that_earn_nothing_are_not_offered_and_it_is_said_what_they_earned():
    loops, backbone = data.digits("loops"), tiny_backbone()
    task = train(TaskConfig(gammas=(2,), epochs=0.02, head_steps=20, head_images=200), loops, backbone, "digest")
    kept, tried = with_gains(read(overrides={"measured": 60}), backbone, task, loops)
    assert [each["gamma"] for each in tried] == [2] and tried[0]["pictures"] == 60
    assert (2 in kept.heads) == (2 in kept.prompts) == tried[0]["offered"] == (tried[0]["low"] > 0)
    assert kept.points == task.points and CLASS in {point.reads for point in kept.points.values()}
