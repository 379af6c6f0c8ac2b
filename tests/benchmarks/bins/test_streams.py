"""Two models on one pool or two: the divisions tried, and that compiled code serves each stream as the scheduler does."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.bins.streams import HEAD, PLACEMENTS, Found, Load, Row, StreamsConfig, divisions, load, measure, served
from benchmarks.bins.traces import missing
from pliant.bins.knowledge import Config, knowledge_of
from pliant.bins.scheduler import BinsScheduler
from pliant.bins.simulated import SimulatedBins
from pliant.protocol import Request
from pliant.report import observations
from pliant.simulator import simulate
from tests.fixtures.bins.worlds import bins

needs_data = pytest.mark.skipif(bool(missing()), reason=missing() or "-")
PAIR = [bins("mail"), bins("notes", scale=3.0, slo=0.45)]


def test_every_division_leaves_both_pools_room():
    assert list(divisions(10, 0.7)) == [(4, 6), (5, 5), (6, 4)]
    assert (19, 21) in list(divisions(40, 0.5)) and (10, 30) not in list(divisions(40, 0.5))


def test_the_compiled_path_gives_what_the_scheduler_gives():
    """Two streams, every device with all runtimes."""
    rng = np.random.default_rng(0)
    made = Load(np.sort(rng.uniform(0, 1.0, 900)), rng.integers(1, 513, 900), rng.integers(0, 2, 900))
    known = knowledge_of(PAIR, "static", "shared")
    asked = [
        Request(i, at, at + PAIR[which].slo, PAIR[which].name, 1.0, length)
        for i, (at, length, which) in enumerate(
            zip(made.times.tolist(), made.lengths.tolist(), made.streams.tolist(), strict=True)
        )
    ]
    config = Config(4, drop_late=False, max_waiting=10**6)
    seen = observations(simulate(BinsScheduler(known, config), asked, SimulatedBins(known, asked)))
    expected = [one.answered - one.request.arrival for one in seen]
    assert served(PAIR, "shared", made, 4) == pytest.approx(expected, abs=1e-7)


@needs_data
def test_each_stream_is_the_same_share_of_the_work():
    config = StreamsConfig(devices=10, seconds=60.0)
    made = load(PAIR, 0.5, config, 0)
    seconds = np.stack([[one.cost(max(n, 1))[1] for n in range(513)] for one in knowledge_of(PAIR, "static").streams])
    work = np.bincount(made.streams, weights=seconds[made.streams, made.lengths]) / config.seconds
    assert work == pytest.approx([2.5, 2.5], rel=0.1)
    assert np.all(np.diff(made.times) >= 0)


@needs_data
def test_one_pool_shared_by_all_is_better_than_two():
    found = measure(StreamsConfig(devices=8, seconds=90.0, utilisations=(0.6,)))
    one, two, *_ = found.rows
    assert (one.placement, len(one.devices), len(two.devices)) == ("shared", 1, 2)
    assert sum(one.devices) == sum(two.devices) == 8
    assert one.mean < two.mean


def test_the_table_has_a_line_for_each_way_of_each_placement():
    rows = [Row(p, 0.5, s, d, 0.01, (0.01, 0.02), 0.5) for p in PLACEMENTS for d in ((4,), (1, 3)) for s in (0, 1)]
    table = Found(StreamsConfig(devices=4), tuple(rows)).table()
    assert len(table) == 4 and {len(line) for line in table} == {len(HEAD)}
    assert table[1] == ("shared", "two, best division", "0.5", "1+3", "10.00", "10.00", "20.00", "50.00%")
