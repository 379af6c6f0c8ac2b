"""The comparison of policies: which jobs there are, the same requests for all, targets that cannot hold without figures."""

from __future__ import annotations

import math

import pytest

from pliant.benchmarks.tokens.policies import (
    BOUND,
    COLUMNS,
    LOADS,
    Setting,
    grounds,
    jobs,
    run,
    targets,
)

GROUND = grounds(None)[0]
TINY = Setting(seconds=2.0, azure_seconds=1.0, seeds=2)


@pytest.fixture(scope="module")
def rows():
    wanted = [job for job in jobs(TINY, [GROUND]) if job.workload == "synthetic"]
    return [run(job) for job in wanted]


def test_every_policy_and_the_bound_is_run_at_every_load():
    made = list(jobs(TINY, [GROUND]))
    assert {(job.policy, job.load) for job in made} == {(p, load) for p in (BOUND, *COLUMNS) for load in LOADS}
    assert {job.policy for job in made if job.seed == 1} == {BOUND, "default", "otas"}


def test_bars_read_the_rows_and_fall_short_where_one_is_missing(rows):
    assert {bar.met for bar in targets(rows)} == {True, False}  # 1.7x at 3x is out of reach
    without = [row for row in rows if row.policy != "pets"]
    (blank,) = [bar for bar in targets(without) if "pets" in bar.name]
    assert math.isnan(blank.measured)
    assert not blank.met
