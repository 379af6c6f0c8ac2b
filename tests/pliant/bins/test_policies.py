"""The policies by name: what "first-come" changes, and what it leaves as it is."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.bins.knowledge import Config, knowledge_of
from pliant.bins.policies import POLICIES, make
from pliant.bins.simulated import SimulatedBins
from pliant.bins.work import latest_end
from pliant.errors import InputError
from pliant.protocol import Arrived, Launch
from pliant.report import observations, summarise
from pliant.simulator import simulate
from tests.fixtures.bins.scenarios import bins, requests

RATE = 1500.0  # more than twice the capacity of one device


def journal_of(policy: str, seed: int = 0):
    streams = [bins(placement="shared")]
    load = requests(np.random.default_rng(seed), 1200, RATE)
    return simulate(make(policy, streams, Config()), load, SimulatedBins(knowledge_of(streams), load))


def launched(journal) -> list[Launch]:
    return [action for entry in journal for action in entry.actions if isinstance(action, Launch)]


@pytest.mark.parametrize("seed", range(3))
def test_first_come_serves_in_order_of_arrival_on_the_dynamic_runtime_alone(seed):
    """Exactly, but for those who are not expected to be in time any more: they are tried when nobody else waits."""
    journal, streams = journal_of("first-come", seed), [bins(placement="shared")]
    stream, margin = knowledge_of(streams, runtimes="dynamic").streams[0], Config().margin
    by_id = {entry.event.request.id: entry.event.request for entry in journal if isinstance(entry.event, Arrived)}
    begun = [(entry.now, action) for entry in journal for action in entry.actions if isinstance(action, Launch)]
    assert {launch.setting for _, launch in begun} == {len(streams[0].shapes) - 1}
    # A batch includes later texts of the same class, so only the first requests of launches must be in order.
    first = [(now, by_id[launch.requests[0]]) for now, launch in begun]
    hopeful = [each.id for now, each in first if now + stream.cost(each.length)[1] <= latest_end(each, margin)]
    assert hopeful == sorted(hopeful)
    assert len(hopeful) > 250
    ran = [number for _, launch in begun for number in launch.requests]
    assert len(ran) == len(set(ran))


def test_by_default_less_work_comes_first_and_static_runtimes_are_used():
    ran = launched(journal_of("default"))
    assert [launch.requests[0] for launch in ran] != sorted(launch.requests[0] for launch in ran)
    assert len({launch.setting for launch in ran}) > 1


def test_under_overload_the_default_misses_fewer_deadlines_and_both_drop_alike():
    reports = {policy: summarise(observations(journal_of(policy))) for policy in POLICIES}
    missed = {policy: 1 - report.attainment for policy, report in reports.items()}
    assert missed["default"] < 0.75 * missed["first-come"]
    assert all(set(report.drops) == {"late"} for report in reports.values())


def test_an_unknown_policy_and_one_that_the_placement_excludes_are_refused():
    with pytest.raises(InputError, match="policy is 'best', but must be one of default, first-come"):
        make("best", [bins(placement="shared")], Config())
    with pytest.raises(
        InputError, match="policy is first-come, but must be default, as the streams' placement is single"
    ):
        make("first-come", [bins(placement="single")], Config())
