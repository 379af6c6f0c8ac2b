"""The comparison of policies: which jobs there are, the same requests for all, targets that cannot hold without figures."""

from __future__ import annotations

import math

from pliant.benchmarks.tokens.policies import BOUND, COLUMNS, LOADS, SEEDED, Setting, jobs, run, targets

TINY = Setting(seconds=2.0, seeds=2)


def test_every_policy_and_the_bound_is_run_at_every_load_and_targets_fall_short_where_one_is_missing():
    made = jobs(TINY)
    assert {(job.policy, job.load) for job in made} == {(p, load) for p in (BOUND, *COLUMNS) for load in LOADS}
    assert {job.policy for job in made if job.seed == 1} == set(SEEDED)
    rows = list(map(run, made))
    assert {target.met for target in targets(rows)} == {True, False}  # 1.7x at 3x is out of reach
    (blank,) = [each for each in targets([row for row in rows if row.policy != "pets"]) if "pets" in each.name]
    assert math.isnan(blank.measured) and not blank.met
