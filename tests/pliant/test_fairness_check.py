"""The counters of tenants notice where they contradict themselves."""

from __future__ import annotations

import pytest

from pliant.fairness import Fairness
from tests.pliant.test_fairness import STRICT, waiting


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda fairness: fairness._owners.pop(0), "the tenants' waiting requests"),
        (lambda fairness: setattr(fairness, "several", False), "several tenants"),
        (lambda fairness: setattr(fairness, "_single", "ann"), "the only tenant"),
        (lambda fairness: fairness._tenants.update(cleo=fairness._tenants["ann"]), "active but not known"),
    ],
)
def test_counters_that_contradict_themselves_are_noticed(spoil, message):
    fairness = Fairness(STRICT)
    waiting(fairness, {"ann": 1, "ben": 2, "cleo": 1})
    fairness.check([0, 1, 2, 3])
    with pytest.raises(AssertionError, match="the tenants' waiting requests"):
        fairness.check([0, 1, 2])
    spoil(fairness)
    with pytest.raises(AssertionError, match=message):
        fairness.check([0, 1, 2, 3])
