"""Who sends a service's own answers back as labels is named; who labels honestly is not."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.outcomes.echoes import Echoes


@pytest.mark.parametrize("mean", [0.667, 0.8, 0.9])
def test_own_answers_are_named_within_200_labels(mean):
    for seed in range(40):
        echoes, rng = Echoes(), np.random.default_rng(seed)
        for _ in range(200):
            echoes.add("own", True, float(rng.beta(6 * mean, 6 * (1 - mean))))
        assert echoes.named["own"] <= 200


@pytest.mark.parametrize("modest", [1.0, 0.6])
def test_honest_labels_are_not_also_where_the_model_is_modest(modest):
    """`modest`: disagreement over what the confidences say."""
    named = 0
    for seed in range(40):
        echoes, rng = Echoes(), np.random.default_rng(seed)
        for _ in range(3000):
            sure = float(rng.beta(6 * 0.8, 6 * 0.2))
            echoes.add("honest", bool(rng.random() > modest * (1 - sure)), sure)
        named += bool(echoes.named)
    assert named <= 1


def test_each_tenant_is_judged_by_its_own_labels_and_named_once():
    echoes = Echoes()
    told = [echoes.add(tenant, tenant == "own", 0.6) for tenant in ("own", "other") * 200]
    assert sum(told) == 1 and list(echoes.named) == ["own"]
