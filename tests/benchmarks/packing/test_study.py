"""The study of all policies: the same requests for each, the same figures for a seed, verdicts of the worst seed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pliant.benchmarks.packing.study import NO_HOST, PEAK_13B, PEAK_33B, Job, Verdict, serve, targets
from pliant.benchmarks.packing.traces import Load, at_rate
from pliant.packing.scheduling.policy import POLICIES
from tests.fixtures.packing.scenarios import ground, with_forecasts

OF = with_forecasts()


def contend(ground, load, foretold, policies=tuple(POLICIES)):
    """Return one row a policy."""
    return [serve(Job(ground, load, foretold, policy, 0)) for policy in policies]


LOAD = at_rate(OF.lengths, 120.0, 3.0, 0)


def test_every_policy_serves_every_request_to_its_last_token():
    rows = contend(ground(), LOAD, OF)
    made = int(OF.lengths.output[LOAD.rows].sum())
    assert [row.policy for row in rows] == list(POLICIES)
    assert all(row.requests == len(LOAD.rows) for row in rows)
    assert all(row.tokens * row.seconds == pytest.approx(made) for row in rows)
    assert all(row.rate * row.seconds == pytest.approx(row.requests) for row in rows)


def _row(policy: str, seed: int, **figures):
    (row,) = contend(ground(), Load("three", np.zeros(3), np.arange(3)), OF, ["paged"])
    return replace(row, policy=policy, seed=seed, **figures)


def test_the_worst_seed_counts():
    rows = [_row("default", 0, mean=1.0, rate=3.0), _row("s3", 0, mean=4.0, rate=1.0)]
    rows += [_row("default", 1, mean=3.0, rate=2.0), _row("s3", 1, mean=4.0, rate=1.0)]
    assert Verdict(rows).most("mean", "s3") == 0.75 and Verdict(rows).least("rate", "s3") == 2.0
    assert np.isnan(Verdict(rows).least("rate", "oracle"))


def test_bars_are_taken_from_their_sections_and_a_missing_rival_falls_short():
    good = [_row("default", 0, mean=1.0, rate=4.0, p99=5.0, recomputed=0.01, batch=9.0)]
    good += [_row(name, 0, mean=4.0, rate=2.0, p99=4.0, batch=5.0) for name in ("s3", "oracle", "paged")]
    sections = {PEAK_13B: good, PEAK_33B: good, NO_HOST: good}
    found = {bar.name: bar for bar in targets(sections)}
    assert len(found) == 7 and all(bar.met for bar in found.values())
    lonely = targets(sections | {PEAK_13B: good[:1]})
    assert [bar.met for bar in lonely] == [False] * 4 + [True, False, True]
