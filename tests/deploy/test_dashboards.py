"""Page and dashboards are those of the list: made anew they are the same, and each query asks for what there is."""

from __future__ import annotations

import re

import pytest

from deploy.dashboards import DASHBOARDS, PAGE, DashboardQuery, dashboards, page, queries
from pliant import systems
from pliant.serving.monitoring.metric_list import drawn_of, metrics_of, samples_of

ADDED = {"system", "instance", "job"}
"""Labels that prometheus.yaml adds."""
HIDDEN = {"packing": {"pliant_estimated_accuracy", "pliant_lowered_sequences"}}


def named(expr: str) -> set[str]:
    return set(re.findall(r"\bpliant_\w+", expr))


def test_page_and_dashboards_are_those_that_the_list_gives_and_small():
    kept = {path.name: path.read_text(encoding="utf-8") for path in DASHBOARDS.iterdir()}
    assert kept == dashboards() and PAGE.read_text(encoding="utf-8") == page(), "run python -m deploy.dashboards"
    assert set(kept) == {f"{name}.json" for name in ("overview", *systems.names())}
    assert all(len(content.encode()) < 100_000 for content in kept.values())


@pytest.mark.parametrize("system", systems.names())
def test_the_page_and_the_dashboard_of_a_system_show_all_its_metrics_and_no_others(system):
    shown = set().union(*(named(query.expr) for query in queries() if query.dashboard == system))
    metrics = metrics_of(system)
    assert {metric.name for metric in metrics} - {metric.name for metric in drawn_of(system)} == HIDDEN.get(
        system, set()
    )
    assert shown == {samples_of(metric)[0] for metric in drawn_of(system)}
    assert all(f"| `{metric.name}` |" in page() for metric in metrics)


def test_what_may_never_happen_is_zero_without_a_sample_and_what_needs_more_says_so():
    by_panel = {(query.dashboard, query.panel): query for query in queries()}
    assert by_panel["bins", "fallbacks in an hour"].expr.endswith("or vector(0)")
    assert by_panel["bins", "fallbacks in an hour"].after == ""
    assert by_panel["tokens", "calibration error"].after == "a label"
    expected = 'max(pliant_pins{system="tokens",instance=~".*"})'
    assert by_panel["tokens", "pins"] == DashboardQuery("tokens", "pins", expected, "")
    grown = 'sum by (task) (rate(pliant_engine_tokens{system="packing",instance=~".*"}[5m]))'
    assert by_panel["packing", "engine tokens per second"].expr == grown
    share = by_panel["overview", "share late"].expr
    whole = 'sum by (system) (rate(pliant_outcomes_total{instance=~".*"}[5m]))'
    late = 'sum by (system) (rate(pliant_outcomes_total{instance=~".*",outcome="late"}[5m]))'
    assert share == f"({late} or 0 * {whole}) / {whole}"
