"""Which head serves a gamma, which gamma a rate asks for, and a variant's tasks as the runtime takes them."""

from __future__ import annotations

import pytest

from pliant.tokens.artifact import RateRule
from tests.fixtures.tokens.samples import tiny_task, tiny_variant


def test_merged_settings_share_the_head_of_gamma_0_and_prompts_have_their_own():
    task = tiny_task("digits", ["zero", "one"], "digest", gammas=(2, 8))
    assert task.head(-20) is task.head(-1) is task.head(0) is task.heads[0]
    assert task.head(2) is task.heads[2] and task.head(8) is task.heads[8]
    with pytest.raises(KeyError):
        task.head(4)


@pytest.mark.parametrize(("rate", "gamma"), [(0.0, 8), (99.9, 8), (100.0, 0), (199.9, 0), (200.0, -20), (1e9, -20)])
def test_a_rate_asks_for_the_gamma_of_its_interval_which_does_not_hold_its_upper_end(rate, gamma):
    assert RateRule(below=(100.0, 200.0), gammas=(8, 0, -20)).gamma(rate) == gamma


def test_a_variants_tasks_are_of_gamma_0_alone_on_its_own_backbone():
    variant = tiny_variant("small", {"letters": ("a", "b", "c"), "shapes": ("round", "square")}, "cpu")
    letters, shapes = variant.adapters("digest")
    assert (letters.name, shapes.name) == ("letters", "shapes")
    assert letters.classes == ("a", "b", "c") and letters.backbone == "digest"
    assert letters.head(0) is letters.head(-5) is variant.tasks["letters"].head
    assert not letters.prompts and set(letters.heads) == {0}
    assert dict(letters.accuracy) == {0: variant.tasks["letters"].accuracy}
    assert dict(letters.test_accuracy) == {0: variant.tasks["letters"].test_accuracy} != dict(letters.accuracy)
    assert shapes.data == variant.tasks["shapes"].data
