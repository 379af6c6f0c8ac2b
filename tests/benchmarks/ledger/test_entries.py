"""The ledger has what it must, and what CI can measure of it is still as good as when it landed."""

from __future__ import annotations

import pytest

from pliant import systems
from pliant.benchmarks.ledger.__main__ import landed
from pliant.benchmarks.ledger.entries import ELSEWHERE, ENTRIES
from pliant.benchmarks.ledger.measure import here, known, lines, measure_part
from pliant.benchmarks.parts import PARTS

CAPABILITIES = (
    "live",
    "policies",
    "planning",
    "scheduling",
    "kernels",
    "HTTP",
    "several devices",
    "recovery",
    "admission",
)
LATER = ("engine", "watch", "trials", "stack", "vLLM", "GPU")


def test_every_system_and_every_capability_has_a_promise():
    covered = [word for each in (*ENTRIES, *ELSEWHERE) for word in each.covers.split(", ")]
    assert not {*systems.names(), *CAPABILITIES, *LATER} - set(covered)
    assert {each.part for each in ENTRIES if each.bench == "demo"} == set(systems.names())


def test_names_are_unique_and_what_ci_measures_is_there_once_it_has_landed():
    names = [each.name for each in (*ENTRIES, *ELSEWHERE)]
    assert len(names) == len(set(names))
    assert {each.name for each in ENTRIES if each.in_ci} <= set(landed())
    assert not set(landed()) - set(names)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_the_part_of_each_entry_exists(entry):
    if entry.bench != "demo":
        assert entry.part in PARTS[entry.bench]


@pytest.mark.parametrize("each", ELSEWHERE, ids=lambda each: each.name)
def test_what_is_measured_elsewhere_has_a_result_and_can_be_measured_again(each):
    figure = known(each, here().today).now
    assert figure.target and figure.commit
    bench, _, part = each.result.partition("-")
    if bench not in ("gpu", "stack"):
        assert part in PARTS[bench]


@pytest.mark.slow
def test_no_promise_that_ci_measures_is_lost():
    """In virtual time, so that it is the same on every machine; `make ledger` measures the others."""
    entries = [each for each in ENTRIES if each.in_ci]
    judged = list(lines(entries, landed(), here(), measure_part))
    assert [line.sentence for line in judged if line.lost] == []
    assert not [line.now.skipped for line in judged if line.now.skipped]
