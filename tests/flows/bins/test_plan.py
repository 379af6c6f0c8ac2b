"""Which bins a stream gets, from seconds and lengths that are made up: no model, no device."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.bins.artifact import Shape
from pliant.flows.bins.champions import Record
from pliant.flows.bins.config import BinsFlowConfig, EdgesConfig, StreamConfig
from pliant.flows.bins.plan import Choice, ShapeTrial, choose, describe, weigh
from pliant.flows.bins.publish import card
from pliant.flows.bins.stages import digests, observe
from pliant.latency import LatencyTable
from pliant.progress import silent
from pliant.protocol import Arrived, JournalEntry, Request
from pliant.registry.releases import COLUMN
from pliant.serving.journal import FileRecorder
from tests.fixtures.bins.encoders import tiny_encoder

LONGEST = 64


def table(factor: float = 1.0, batches: tuple[int, ...] = (1, 2, 4)) -> LatencyTable:
    """A millisecond and a tenth a token and text, times `factor`."""
    lengths = (1, 16, 32, 64)
    rows = tuple(tuple(factor * 1e-3 * (1 + 0.1 * n * b) for b in batches) for n in lengths)
    return LatencyTable(lengths, batches, rows)


def line(factor: float = 1.0) -> np.ndarray:
    """The same at batch 1, by length."""
    return factor * 1e-3 * (1 + 0.1 * np.arange(LONGEST + 1))


def spread(*lengths: int) -> np.ndarray:
    return np.bincount(lengths, minlength=LONGEST + 1)


def judged(measured, requests, margin=0.02, seen=0.5):
    """Weighed with a staircase of `seen` times the dynamic runtime's seconds."""
    return weigh(measured, table(), requests, margin, (line(seen), table()))


def test_so_many_bins_are_chosen_as_come_near_the_most():
    requests = spread(*range(1, 65))
    chosen = choose(requests, line(), table(), EdgesConfig(most=8, within=0.02))
    assert chosen.edges[-1] == LONGEST
    assert list(chosen.costs) == sorted(chosen.costs, reverse=True)
    near = 1.02 * chosen.costs[-1]
    assert chosen.costs[len(chosen.edges) - 1] <= near < chosen.costs[len(chosen.edges) - 2]
    assert chosen.dynamic < chosen.costs[-1]  # not padded, at the same seconds a token


def test_a_number_that_is_told_is_kept_to_and_none_gives_no_bin():
    requests = spread(*range(1, 65))
    assert len(choose(requests, line(), table(), EdgesConfig(count=3)).edges) == 3
    none = choose(requests, line(), table(), EdgesConfig(count=0))
    assert none.edges == ()
    assert len(none.costs) == 1


def test_a_static_runtime_is_kept_where_it_beats_the_dynamic_one_at_the_lengths_it_serves():
    """At 16 requests are as long as the bin, so a slight gain counts; at 64 they are half as long, and padding eats it."""
    measured = {Shape(16, 1): 0.9 * 2.6e-3, Shape(64, 1): 0.9 * 7.4e-3}
    weighed = judged(measured, spread(16, 16, 32, 32))
    assert [(trial.length, trial.kept) for trial in weighed] == [(16, True), (64, False)]
    assert [trial.dynamic for trial in weighed] == pytest.approx([2.6e-3, 4.2e-3])
    assert "1 of 2 static runtimes kept, for up to 16 tokens" in describe(weighed)


def test_a_bin_that_nobody_asks_for_gets_no_static_runtime():
    weighed = judged({Shape(16, 1): 1e-9, Shape(64, 1): 1e-9}, spread(32))
    assert [trial.kept for trial in weighed] == [False, True]


def test_what_was_faster_once_and_not_the_other_time_is_not_kept():
    """On a machine that others used too, half of the static shapes seemed faster, though none is."""
    measured = {Shape(64, 1): 1e-3, Shape(64, 2): 1e-3}
    assert [trial.kept for trial in judged(measured, spread(64), seen=0.5)] == [True, True]
    assert [trial.kept for trial in judged(measured, spread(64), seen=1.0)] == [False, False]


def test_a_batch_that_saves_nothing_per_text_is_not_kept():
    measured = {Shape(64, 1): 1e-6, Shape(64, 2): 2e-6, Shape(64, 4): 3e-6}
    weighed = judged(measured, spread(32, 33))
    assert [(trial.batch, trial.kept) for trial in weighed] == [(1, True), (2, False), (4, True)]


def test_a_card_says_of_each_static_shape_what_it_takes_and_whether_it_is_served_those_in_front():
    config = BinsFlowConfig()
    record = Record(config.engine, config.latency, config.edges, config.threads)
    weighed = ShapeTrial(16, 1, 0.002, 0.001, False), ShapeTrial(64, 2, 0.002, 0.003, True)
    said = card(Choice((16, 64), (0.004, 0.003), 0.0035), weighed, record).replace(COLUMN, " | ")
    assert "1 of 2 static runtimes kept, for up to 64 tokens." in said
    assert "3.00 ms padded to bins, 4.00 ms padded to the longest, 3.50 ms in the dynamic runtime." in said
    assert said.splitlines()[-2:] == ["| 64 x 2 | 2.00 | 3.00 | 1.50 | yes |", "| 16 x 1 | 2.00 | 1.00 | 0.50 | no |"]


@given(st.lists(st.integers(1, LONGEST), min_size=1, max_size=12), st.sampled_from((1, 2, 4)))
def test_the_dynamic_runtime_is_expected_to_pad_a_batch_to_its_longest_text(lengths, batch):
    """Against drawing every combination."""
    from itertools import product

    few = lengths[:4]
    weighed = judged({Shape(LONGEST, batch): 1.0}, spread(*few))
    drawn = [table().between(max(draw), batch) for draw in product(few, repeat=batch)]
    assert weighed[0].dynamic == pytest.approx(float(np.mean(drawn)))


def record(path, lengths, **options) -> None:
    recorder = FileRecorder(path, **options)
    for number, length in enumerate(lengths):
        recorder(JournalEntry(number, Arrived(Request(number, number, number + 1, "mine", 1.0, length)), ()))
    recorder.close()


def test_a_restart_a_further_generation_and_a_full_file_lose_no_request(tmp_path):
    journal = tmp_path / "bins.jsonl"
    record(journal, [1, 1])
    record(journal, [2] * 20, segment_bytes=500)
    record(tmp_path / "bins-2.jsonl", [3])
    record(tmp_path / "bins-2.jsonl", [4])
    (tmp_path / "bins-other.jsonl").write_text("not a journal of this service\n")
    stream = StreamConfig(lengths=(f"journal:{journal}",))
    seen = observe(stream, "mine", tiny_encoder(max_length=8), None, EdgesConfig(least=24), silent)
    assert seen.requests.tolist() == [0, 2, 20, 1, 1, 0, 0, 0, 0]
    assert len(digests(stream)) > 5
