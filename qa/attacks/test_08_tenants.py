"""One of ten tenants sends ten times its share; the others, who send 0.8 of theirs, must not notice."""

from __future__ import annotations

import numpy as np
import pytest

from qa.targets import Targets, say
from tests.fixtures import tenants

SECONDS, SEEDS = {"tokens": 20.0, "bins": 8.0, "cascade": 6.0, "packing": 60.0}, 3


@pytest.mark.parametrize("system", SECONDS)
def test_the_others_do_not_notice_a_tenant_at_ten_times_its_share(system):
    rows = []
    for seed in range(SEEDS):
        if system == "packing":
            rows.append(tenants.packing_compared(seed, SECONDS[system]))
        else:
            compared = tenants.compared(system, seed, SECONDS[system])
            rows.append((compared.p99, compared.throughput))
        say(f"{system}, seed {seed}: p99 {rows[-1][0]:.3f}x, throughput {rows[-1][1]:.3f}x")
    targets = Targets(f"08 tenants, {system}")
    p99, throughput = np.median(rows, axis=0)
    worst, least = max(row[0] for row in rows), min(row[1] for row in rows)
    say(f"{system}, the worst seeds: p99 {worst:.3f}x, throughput {least:.3f}x")
    targets.at_most("others' p99 over alone (median of the seeds)", float(p99), 1.15, "x")
    targets.at_least("all answers over those without fairness", float(throughput), 0.97, "x")
    targets.check()
