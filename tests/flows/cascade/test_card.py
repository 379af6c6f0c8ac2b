"""What the card of a task says is what its plan says, and a temperature is served only where it earns something."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pliant.cascade.plan import Measured, calibrated
from pliant.flows.cascade.publish import card
from pliant.flows.trained import draw_curves
from pliant.registry.releases import COLUMN, GAP
from pliant.training.classifier import Curves
from tests.fixtures.cascade.tiny import some_cascade, some_outputs, table


def test_a_card_says_what_each_level_and_candidate_earns_and_whether_it_is_served():
    cascade = some_cascade(some_outputs(), test_accuracy={"default": 0.9, "single": 0.95})
    cascade = replace(cascade, levels=(replace(cascade.levels[0], temperature=1.5), cascade.levels[1]))
    lines = card(cascade, 400).replace(COLUMN, " | ").splitlines()
    assert lines[2:4] == ["| level0 | 1.500 | 0.1000 | 0.0500 | yes |", "| level1 | 1.000 | 0.1000 | 0.0500 | no |"]
    assert lines[4:7] == ["", GAP, ""], "MLflow leaves no space between two tables"
    faster = cascade.candidates[1].seconds / cascade.candidates[0].seconds
    assert lines[-2] == f"| default | {faster:.2f} | 90.0% (86.6% to 92.8%) | 85.0% |  | by default |"
    assert lines[-1] == "| single | 1.00 | 95.0% (92.4% to 96.9%) | 85.0% |  | by its name alone |"


def test_curves_of_a_single_epoch_have_a_tick_at_that_one_and_none_between_epochs():
    axes = draw_curves({"large": Curves(train_loss=(1.2,), loss=(1.0,), score=(0.5,))}).axes
    assert [[*each.get_xticks()] for each in axes] == 2 * [[0, 1, 2]]


def test_a_temperature_that_does_not_lower_the_calibration_error_is_not_taken():
    served = []
    for seed in range(12):
        rng, outputs = np.random.default_rng(seed), some_outputs((0.9,), 200)
        logit_RK = rng.normal(0, 2, (200, 3)).astype(np.float32)
        labels = (logit_RK + rng.gumbel(size=(200, 3))).argmax(axis=1).astype(float)
        outputs = replace(outputs, labels=labels, levels=(replace(outputs.levels[0], logits=logit_RK),))
        [level] = calibrated(outputs, outputs, 0.0, [Measured(table(1.0))])
        served.append(level.temperature != 1.0)
        assert level.error < level.error_before if served[-1] else level.error == level.error_before
    assert set(served) == {True, False}
