"""How entries are measured and judged: each part once, and once more in doubt. What the parts measure is made up."""

from __future__ import annotations

import json
from datetime import date

import pytest

from pliant.benchmarks.harness import Skipped
from pliant.benchmarks.ledger.__main__ import landed, run
from pliant.benchmarks.ledger.entries import Elsewhere, Entry
from pliant.benchmarks.ledger.measure import STALE, Origin, known, lines
from pliant.benchmarks.results import Target, write
from pliant.errors import WorkerError

ORIGIN = Origin(date(2026, 11, 27), "abc", {"cores": 2, "avx": "AVX2"})
ENTRIES = (Entry("fast", "bins", "bins", "one", "speed"),)
MET, MISSED, SKIPPED, BROKEN = 2.0, 0.5, Skipped("needs Ray"), WorkerError("the cluster's process ended")


def part(*rounds: float | Exception):
    """Give a part whose target, at least 1, is this the first time, this the second; and the list of its rounds."""
    left = list(rounds)

    def measure():
        figure = left.pop(0)
        if isinstance(figure, Exception):
            raise figure
        return [Target("speed", figure, ">=", 1.0, "x"), Target("another", 0.0, ">=", 1.0)]

    return (lambda _bench, _part: measure), left


@pytest.mark.parametrize(
    ("landed", "rounds", "verdict"),
    [
        (MET, [MET], "met"),
        (MISSED, [MET], "met"),
        (None, [MET], "met"),
        (MET, [MISSED, MISSED], "missed twice"),
        (MET, [MISSED, MET], "met at the second"),
        (MISSED, [MISSED], "missed"),  # as it was
        (None, [MISSED], "missed"),  # new: nothing is lost
        (SKIPPED, [MISSED], "missed"),  # nothing was kept before
        (MET, [BROKEN, BROKEN], "missed twice"),
        (MET, [BROKEN, MET], "met at the second"),
        (MET, [SKIPPED], "skipped"),
    ],
)
def test_a_promise_is_lost_only_where_it_was_met_and_is_missed_twice(landed, rounds, verdict):
    former = {} if landed is None else {"fast": next(lines(ENTRIES, {}, ORIGIN, part(landed)[0])).now}
    measure, left = part(*rounds)
    (line,) = lines(ENTRIES, former, ORIGIN, measure)
    assert (line.verdict, line.lost, left) == (verdict, verdict == "missed twice", [])


def test_an_error_of_ours_is_not_hidden():
    with pytest.raises(ZeroDivisionError):
        list(lines(ENTRIES, {}, ORIGIN, part(ZeroDivisionError("a fault"))[0]))


def test_a_run_writes_lines_and_a_lost_promise_stays_until_it_is_given_up(tmp_path, capsys):
    path = tmp_path / "ledger.json"
    assert run(ENTRIES, ORIGIN, part(MET)[0], (), path) == 0
    (speed,) = json.loads(path.read_text())
    assert (speed["figure"], speed["sense"], speed["limit"], speed["met"]) == (2.0, ">=", 1.0, True)
    assert run(ENTRIES, ORIGIN, part(MISSED, MISSED)[0], (), path) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "fast: speed is 0.5 x where >= 1 x is promised, twice in a row" in said and "ACCEPT='fast'" in said
    assert landed(path)["fast"].figure == MET
    assert run(ENTRIES, ORIGIN, part(MISSED, MISSED)[0], ("fast",), path) == 0
    assert landed(path)["fast"].figure == MISSED


@pytest.mark.parametrize(("days", "verdict"), [(STALE, "elsewhere"), (STALE + 1, "stale")])
def test_what_is_measured_elsewhere_stands_as_measured_last_and_grows_stale(tmp_path, days, verdict):
    each = Elsewhere("bins, live", "bins", "bins-live", "latency")
    assert known(each, ORIGIN.today, tmp_path).verdict == "stale"
    write(tmp_path, "bins-live", [Target("mean latency", 0.5, "<=", 1.0, "x"), Target("others", 1, ">=", 0)], {})
    line = known(each, date.fromordinal(date.today().toordinal() + days), tmp_path)
    assert (line.verdict, line.now.met, line.now.figure) == (verdict, True, 0.5)
