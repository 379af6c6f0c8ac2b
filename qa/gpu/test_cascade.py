"""On each device: classifiers answer as transformers' plain model on the CPU does for each text alone."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.cascade.exit import exit_logits
from pliant.cascade.runtime import CascadeRuntime, Execution, Part
from pliant.errors import InputError
from tests.fixtures.bins.encoders import random_payload
from tests.fixtures.cascade.classifiers import tiny_classifier, tiny_exit

FAMILIES = ("bert", "electra", "distilbert", "modernbert")
LENGTHS = (12, 5, 20, 12, 1)


def payloads(lengths=LENGTHS):
    rng = np.random.default_rng(1)
    return [random_payload(rng, length) for length in lengths]


def plain(classifier) -> CascadeRuntime:
    return CascadeRuntime({0: classifier}, "cpu", Execution(packed=False))


@pytest.mark.parametrize("importance", [False, True], ids=["logits", "importance"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_batch_answers_as_each_text_alone_on_the_cpu(device, family, importance):
    classifier = tiny_classifier(family=family)
    run, reference = CascadeRuntime({4: classifier}, device).run(4, payloads(), importance), plain(classifier)
    for row, payload in enumerate(payloads()):
        alone = reference.run(0, [payload], importance)
        np.testing.assert_allclose(run.logits[row], alone.logits[0], atol=1e-3)
        if importance:
            np.testing.assert_allclose(run.importance[row], alone.importance[0], atol=1e-2)


def test_a_long_text_is_attended_in_blocks_with_the_same_importance(device, monkeypatch):
    classifier = tiny_classifier()
    whole = CascadeRuntime({0: classifier}, device).run(0, payloads(), importance=True)
    for name in ("_ON_CPU", "_ON_GPU"):
        monkeypatch.setattr(f"pliant.cascade.attention.{name}", 64)
    parts = CascadeRuntime({0: classifier}, device).run(0, payloads(), importance=True)
    for kind in ("logits", "importance"):
        for some, others in zip(getattr(whole, kind), getattr(parts, kind), strict=True):
            np.testing.assert_allclose(some, others, atol=1e-3)


def test_models_side_by_side_answer_as_each_by_itself(device):
    models = {number: tiny_classifier(str(number), seed=number) for number in range(3)}
    together = CascadeRuntime(models, device)
    for number, classifier in models.items():
        alone = plain(classifier).run(0, payloads()).logits
        np.testing.assert_allclose(together.run(number, payloads()).logits, alone, atol=1e-3)


def test_bfloat16_stays_near_float32(device):
    classifier = tiny_classifier()
    try:
        lowered = CascadeRuntime({0: classifier}, device, Execution(precision="bfloat16"))
    except InputError as error:
        pytest.skip(str(error))
    exact, half = plain(classifier).run(0, payloads()).logits, lowered.run(0, payloads()).logits
    assert np.median(np.abs(np.array(exact) - np.array(half))) < 0.1


def test_an_exit_and_what_is_left_behind_it_answer_as_on_the_cpu(device):
    classifier, head = tiny_classifier(layers=3), tiny_exit(1)
    parts = {0: classifier, 1: Part(classifier, exit=head), 2: Part(classifier, begin=1)}
    run = CascadeRuntime(parts, device).run
    logits, features = plain(classifier).hidden(0, payloads(), [1])
    np.testing.assert_allclose(run(1, payloads()).logits, exit_logits(head, np.stack(features)[:, 0]), atol=1e-3)
    np.testing.assert_allclose(run(2, payloads()).logits, logits, atol=1e-3)
