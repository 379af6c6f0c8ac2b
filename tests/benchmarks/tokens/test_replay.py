"""The comparison of two replays, from replies that are made up; and the load that both replay."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from pliant.benchmarks.demo import turns
from pliant.benchmarks.tokens import replay
from pliant.benchmarks.tokens.replay import ADAPTIVE, FIXED, ReplayConfig, compare
from pliant.protocol import Request
from pliant.tokens.simulated import ReferenceConfig
from tests.fixtures.load_samples import CAPACITY, LOAD, answered, replayed


def test_pairs_of_stretches_go_to_both_in_turns_and_make_one_load_together(monkeypatch):
    asked: list[tuple[str, list[Request]]] = []

    async def capacity(address, *_given):
        assert address == FIXED
        return CAPACITY

    async def sent(address, requests, *_given):
        asked.append((address, requests))
        return [answered(request) for request in requests]

    monkeypatch.setattr(
        replay.endpoint, "serving_each", lambda *_: nullcontext({name: name for name in (FIXED, ADAPTIVE)})
    )
    monkeypatch.setattr(replay, "capacity", capacity)
    monkeypatch.setattr(turns, "replay", sent)
    reference = ReferenceConfig(quiet=(0.5, 0.8), loud=(1.5, 2.0), seconds=2.0)
    given = {"digit": [], "loops": []}
    found = compare({}, given, ReplayConfig(reference=reference), lambda _name: nullcontext(lambda *_: None))
    assert [address for address, _ in asked] == [FIXED, ADAPTIVE, ADAPTIVE, FIXED]
    (_, first), (_, second), (_, third), (_, fourth) = asked
    assert first == second != third == fourth
    assert all(0 <= request.arrival < 4.0 < request.deadline + 4.0 for request in (*first, *third))
    for policy in (FIXED, ADAPTIVE):
        ids = [each.request.id for each in found.compared.seen(policy)]
        assert ids == [request.id for request in found.load.requests]


def test_the_ratio_of_a_half_counts_that_half_alone():
    compared = replayed(answered, lambda r: answered(r, correct=r.id not in LOAD.loud))
    assert compared.ratio(loud=False) == pytest.approx(1.0)
    assert compared.ratio(loud=True) > 1e6
    assert 1.0 < compared.ratio() < 5.0
