"""One of ten tenants sends ten times its share and says that its requests are worth a million times as much."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qa.targets import Targets, say
from tests.fixtures import tenants

LOADS = {"tokens": (tenants.tokens_load, tenants.run_tokens), "cascade": (tenants.cascade_load, tenants.run_cascade)}
"""The systems whose schedulers look at utilities; packing's is in the order within a tenant alone."""


@pytest.mark.parametrize("system", LOADS)
def test_utility_buys_nothing_beyond_the_share(system):
    load, run = LOADS[system]
    targets = Targets(f"06 utility, {system}")
    modest = load(0, 6.0, tenants.CAPACITY[system])
    base = tenants.compare(modest, run)
    for utility in (10.0, 1e6):
        dear = [replace(r, utility=utility if r.tenant == tenants.FLOOD else 1.0) for r in modest]
        compared = tenants.compare(dear, run)
        say(f"utility {utility:g}: others {compared.others}, without tenants {compared.blind}")
        kept = compared.others.on_time / base.others.on_time
        targets.at_least(f"others' answers in time at utility {utility:g} over 1", kept, 0.99)
    targets.check()
