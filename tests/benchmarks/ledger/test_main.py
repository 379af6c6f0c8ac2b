"""What a run of the ledger prints and writes. What the parts measure is made up."""

from __future__ import annotations

import json

import pytest

from pliant.benchmarks.harness import Skipped
from pliant.benchmarks.ledger.__main__ import landed, run
from pliant.benchmarks.ledger.entries import Entry
from pliant.benchmarks.ledger.measure import here
from pliant.benchmarks.results import Target

ENTRIES = (Entry("speed of bins", "bins", "bins", "one", "speed"), Entry("a node", "recovery", "bins", "two", "lost"))


@pytest.fixture
def ledger(tmp_path):
    """Run the ledger with these figures; what "a node" loses must be 0."""
    path = tmp_path / "ledger.json"

    def measure(speed: float, lost: float | None = 0.0, accepted: tuple[str, ...] = ()) -> int:
        def part(_bench, name):
            def targets():
                if name == "two" and lost is None:
                    raise Skipped("needs Ray: pip install -e '.[ray]'")
                return [Target("speed", speed, ">=", 1.0, "x"), Target("requests lost", lost, "<=", 0)]

            return targets

        return run(ENTRIES, here(), part, accepted, path)

    return measure, path


def shown(capsys) -> str:
    return " ".join(capsys.readouterr().out.split())


def test_a_run_writes_a_line_for_each_figure_with_limit_day_commit_seconds_and_machine(ledger, capsys):
    measure, path = ledger
    assert measure(2.0) == 0
    speed, node = json.loads(path.read_text())
    assert len(path.read_text().splitlines()) == 2 + len(ENTRIES)
    assert (speed["figure"], speed["sense"], speed["limit"], speed["met"]) == (2.0, ">=", 1.0, True)
    assert node["met"] and set(speed) >= {"date", "commit", "seconds"} and set(speed["machine"]) == {"cores", "avx"}
    assert "1 of 2, 0 s: speed of bins: 2 x, met" in shown(capsys)


def test_a_promise_that_is_lost_ends_with_1_and_a_sentence_and_stays_promised_until_it_is_given_up(ledger, capsys):
    measure, path = ledger
    measure(2.0)
    shown(capsys)
    assert measure(0.5) == 1
    assert "speed of bins: speed is 0.5 x where >= 1 x is promised, twice in a row" in shown(capsys)
    assert landed(path)["speed of bins"].target.measured == 2.0
    assert measure(0.5, accepted=("speed of bins",)) == 0
    assert landed(path)["speed of bins"].target.measured == 0.5
    assert measure(0.4) == 0  # no promise any more
