"""The stage `right` reads pytest's report: what passed, what failed, what was skipped and why, and what was forced."""

from __future__ import annotations

import math

import pytest

from pliant.benchmarks.gpu import right
from pliant.benchmarks.gpu.right import Case, cases_of, summary, verdicts

XML = """<testsuites><testsuite>
<testcase classname="qa.gpu.test_tokens" name="test_a[cuda]"/>
<testcase classname="qa.gpu.test_tokens" name="test_b[cuda]"><failure message="assert 1 == 2&#10;more">trace</failure>
</testcase>
<testcase classname="qa.gpu.test_tokens" name="test_c[cuda]"><skipped message="no compiler">where</skipped></testcase>
<testcase classname="" name="qa.gpu.test_bins"><error message="collection failure">trace</error></testcase>
</testsuite></testsuites>"""


def test_a_report_gives_each_test_and_how_it_ended():
    assert cases_of(XML) == [
        Case("qa.gpu.test_tokens::test_a[cuda]", "passed"),
        Case("qa.gpu.test_tokens::test_b[cuda]", "failed", "assert 1 == 2"),
        Case("qa.gpu.test_tokens::test_c[cuda]", "skipped", "no compiler"),
        Case("::qa.gpu.test_bins", "failed", "collection failure"),
    ]


def test_a_failed_test_misses_and_so_do_no_tests_at_all():
    assert [target.met for target in verdicts("tests", cases_of(XML))] == [True, False]
    assert [target.met for target in verdicts("tests", [])] == [False, True]
    assert [row["test"] for row in summary(cases_of(XML))["not passed"]] == [
        "qa.gpu.test_tokens::test_b[cuda]",
        "qa.gpu.test_tokens::test_c[cuda]",
        "::qa.gpu.test_bins",
    ]


def measured(monkeypatch, cases, device="cuda", tiny=False):
    """Return the arguments of each run of pytest, and the targets by name, where all runs give these cases."""
    runs, targets = [], {}
    monkeypatch.setattr(right, "pytest", lambda arguments: runs.append(arguments) or list(cases))
    right.measure(device, tiny, lambda _part, some, _details: targets.update({target.name: target for target in some}))
    return runs, targets


FORCED = [
    Case("test_after_a_capture_that_failed_all_is_right[cuda]", "passed"),
    Case("test_after_a_lack_of_memory_it_goes_on[cuda]", "passed"),
    Case("test_a_killed_process_comes_back[cuda]", "passed"),
]


@pytest.mark.parametrize(("device", "marked"), [("cuda", "gpu"), ("cpu", "not gpu")])
def test_the_tests_of_the_device_run_those_of_processes_last(monkeypatch, device, marked):
    runs, targets = measured(monkeypatch, FORCED, device)
    assert [run[run.index("-m") + 1] for run in runs] == [f"{marked} and not slow", marked]
    assert all(target.met for target in targets.values())
    runs, _ = measured(monkeypatch, FORCED, device, tiny=True)
    assert len(runs) == 2 and runs[1][-2:] == ["-k", "tokens"]


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("verdict", ["failed", "skipped"])
def test_what_was_forced_misses_where_its_test_fails_or_did_not_run(monkeypatch, number, verdict):
    cases = [Case(case.name, verdict if at == number else case.verdict) for at, case in enumerate(FORCED)]
    _, targets = measured(monkeypatch, cases)
    figures = [target.measured for name, target in targets.items() if name.startswith("share of the tests of")]
    assert [figure == 1.0 for figure in figures] == [at != number for at in range(3)]
    assert math.isnan(figures[number]) == (verdict == "skipped")
