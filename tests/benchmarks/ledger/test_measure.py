"""How entries are measured: each part once, and once more in doubt. What the parts measure is made up."""

from __future__ import annotations

import json
from datetime import date

import pytest

from pliant.benchmarks.harness import Skipped
from pliant.benchmarks.ledger.entries import Elsewhere, Entry
from pliant.benchmarks.ledger.measure import Origin, known, lines
from pliant.benchmarks.ledger.rule import Machine
from pliant.benchmarks.results import Target, write
from pliant.errors import WorkerError

ORIGIN = Origin(date(2026, 11, 27), "abc", Machine(2, "AVX2"))
ENTRIES = (Entry("fast", "bins", "bins", "one", "speed"), Entry("good", "bins", "bins", "one", "quality"))


def measured(*rounds: dict[str, float] | Exception):
    """Give a part whose targets, at least 1, are these the first time, these the second; and the list of its rounds."""
    left = list(rounds)

    def measure():
        figures = left.pop(0)
        if isinstance(figures, Exception):
            raise figures
        return [Target(name, value, ">=", 1.0) for name, value in figures.items()]

    return lambda _bench, _part: measure, left


def landed(**figures: float):
    part, _ = measured({"speed": figures["fast"], "quality": figures["good"]})
    return {line.now.name: line.now for line in lines(ENTRIES, {}, ORIGIN, part)}


@pytest.mark.parametrize(("second", "verdict"), [(1.2, "met at the second"), (0.8, "missed twice")])
def test_a_part_with_a_figure_that_was_met_and_is_missed_is_measured_once_more(second, verdict):
    part, left = measured({"speed": 0.9, "quality": 2.0}, {"speed": second, "quality": 0.1})
    judged = list(lines(ENTRIES, landed(fast=1.5, good=1.5), ORIGIN, part))
    assert [line.verdict for line in judged] == [verdict, "met"]  # of the other the first measurement counts
    assert judged[0].now.target.measured == second and not left


def test_what_cannot_be_measured_here_is_left_out_with_the_reason_and_other_errors_are_not_hidden():
    part, _ = measured(Skipped("needs Ray"))
    judged = list(lines(ENTRIES, landed(fast=1.5, good=1.5), ORIGIN, part))
    assert [line.verdict for line in judged] == ["skipped"] * 2 and judged[0].now.skipped == "needs Ray"
    part, _ = measured(ZeroDivisionError("a fault of ours"))
    with pytest.raises(ZeroDivisionError):
        list(lines(ENTRIES, {}, ORIGIN, part))


def test_a_part_that_breaks_twice_has_lost_what_it_promised():
    broken = WorkerError("the cluster's process ended")
    part, _ = measured(broken, broken)
    (fast, good) = lines(ENTRIES, landed(fast=1.5, good=0.5), ORIGIN, part)
    assert (fast.verdict, good.verdict) == ("missed twice", "missed")
    assert fast.sentence.startswith("fast: the part ended (the cluster's process ended), its figure is - where >= 1 is")
    part, _ = measured(broken, {"speed": 2.0, "quality": 2.0})
    assert next(lines(ENTRIES, landed(fast=1.5, good=0.5), ORIGIN, part)).verdict == "met at the second"


def test_what_is_measured_elsewhere_stands_with_the_day_and_commit_of_its_last_run(tmp_path):
    each = Elsewhere("bins, live", "bins", "bins-live", "latency")
    assert known(each, ORIGIN.today, tmp_path).verdict == "stale"
    assert each.command == "pliant bench bins --part live"
    write(tmp_path, "bins-live", [Target("mean latency", 0.5, "<=", 1.0, "x"), Target("others", 1, ">=", 0)], {})
    line = known(each, date.today(), tmp_path)
    assert (line.verdict, line.now.met, line.now.target.measured) == ("elsewhere", True, 0.5)
    assert line.now.day == date.today().isoformat()
    assert line.now.commit == json.loads((tmp_path / "bins-live.json").read_text())["commit"]
