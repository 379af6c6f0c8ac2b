"""What counts as data for a query of a dashboard; `make stack-test ONLY=dashboards` asks all of them on real servers."""

from __future__ import annotations

from deploy.dashboards import DashboardQuery, queries
from pliant.serving.monitoring.metric_list import all_metrics
from qa.stack.dashboards import NOT_HERE, has_series, has_zero, is_not_here

SYSTEMS = ("tokens", "bins")


def query(expr: str, dashboard: str = "tokens") -> DashboardQuery:
    return DashboardQuery(dashboard, "a panel", expr, "")


def row(value: str, **labels: str):
    return {"metric": labels, "value": [1.0, value]}


def test_a_number_is_data_and_none_or_no_series_is_not():
    plain = query("sum(pliant_waiting)")
    assert has_series([row("0")], plain, SYSTEMS)
    assert not has_series([], plain, SYSTEMS) and not has_series([row("NaN")], plain, SYSTEMS)


def test_the_zero_of_an_event_that_never_came_is_told_from_series():
    event = query("sum by (code) (increase(pliant_refusals_total[1h])) or vector(0)")
    assert has_zero([row("0")], event) and not has_series([row("0")], event, SYSTEMS)
    assert has_series([row("0"), row("0", code="busy")], event, SYSTEMS)
    assert not has_zero([], event) and not has_zero([row("0")], query("sum(pliant_waiting)"))


def test_what_the_overview_draws_has_a_line_for_every_system():
    drawn = query("sum by (system) (pliant_waiting)", "overview")
    assert has_series([row("0", system="bins"), row("1", system="tokens")], drawn, SYSTEMS)
    assert not has_series([row("0", system="bins"), row("NaN", system="tokens")], drawn, SYSTEMS)


def test_events_that_are_not_made_are_metrics_that_there_are_and_drawn_as_zeros():
    names = {metric.name for metrics in all_metrics().values() for metric in metrics}
    assert set(NOT_HERE) <= names
    left_out = [each for each in queries() if is_not_here(each)]
    assert {name for name in NOT_HERE if any(name in each.expr for each in left_out)} == set(NOT_HERE)
    assert all(each.expr.endswith("or vector(0)") for each in left_out)
