"""How the study's targets are judged."""

from __future__ import annotations

import pytest

from pliant.benchmarks.bins.contest import HEAD, HEAD_SEEDS, PAIR, SHARED, Contest, Job, Row


def contest(ours: list[float], pair: list[float]) -> Contest:
    """With these mean latencies by seed in every setting of the first target."""
    rows = []
    for setting in HEAD:
        for scheme, means in ((SHARED, ours), (PAIR, pair)):
            for seed, mean in enumerate(means):
                job = Job(*setting, seed, 60.0, scheme.name)
                rows.append(Row(job=job, requests=1, mean=mean, p98=mean, violations=0.0))
    return Contest(tuple(rows))


def test_a_rival_that_collapses_with_one_seed_decides_nothing_but_the_mean_over_seeds():
    ours, pair = [0.6] * HEAD_SEEDS, [1.0] * (HEAD_SEEDS - 1) + [100.0]
    targets = contest(ours, pair).targets()
    by_median = [target for target in targets if "median of 9 seeds (worst 0.60x)" in target.name]
    by_means = [target for target in targets if target.name.endswith("all seeds")]
    assert len(by_median) == len(by_means) == len(HEAD)
    assert all(target.measured == pytest.approx(0.6) and not target.met for target in by_median)
    assert all(target.met for target in by_means)
