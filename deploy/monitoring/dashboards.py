"""Grafana's dashboards, made from the list of metrics: an overview of all systems, and one a system.

`python -m deploy.monitoring` writes them below deploy/monitoring/grafana/dashboards. `queries` gives every expression in
them, for whoever wants to know whether a Prometheus has data for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from deploy.monitoring.panels import RATE, Panel, Query, dashboard, panel_of, variables
from serving.monitoring.metric_list import Metric, all_metrics, drawn_of

BY = "{{system}}"
_SEEN = '{instance=~"$instance"}'


def _share(of: str, outcomes: str) -> str:
    """Return the share of a counter's samples with these outcomes; 0 where none has been counted yet."""
    whole = f"sum by (system) (rate({of}{_SEEN}[{RATE}]))"
    part = f'sum by (system) (rate({of}{{instance=~"$instance",{outcomes}}}[{RATE}]))'
    return f"({part} or 0 * {whole}) / {whole}"


def _rate(name: str, *labels: str) -> str:
    return f"sum by ({', '.join(('system', *labels))}) (rate({name}{_SEEN}[{RATE}]))"


def _quantile(name: str, quantile: float) -> str:
    return f"histogram_quantile({quantile}, {_rate(f'{name}_bucket', 'le')})"


OVERVIEW: Mapping[str, tuple[Panel, ...]] = {
    "Is it there?": (
        Panel(
            "services",
            "up: Prometheus reaches it; ready: a device is up",
            (
                Query('up{job="pliant"}', f"{BY} {{{{instance}}}} up"),
                Query(f"pliant_ready{_SEEN}", f"{BY} {{{{instance}}}} ready"),
            ),
        ),
        Panel(
            "answers of HTTP by status",
            "per second",
            (Query(_rate("pliant_tenant_answers_total", "status"), f"{BY} {{{{status}}}}"),),
        ),
        Panel(
            "failures of processes",
            "device and engine processes that died or hung, in an hour",
            (Query(f"sum by (system) (increase(pliant_worker_failures_total{_SEEN}[1h]))", BY),),
        ),
    ),
    "Is it in time?": (
        Panel("requests", "per second (packing: outputs)", (Query(_rate("pliant_arrivals_total"), BY),)),
        Panel(
            "share dropped",
            "of all that had an end",
            (Query(_share("pliant_outcomes_total", 'outcome=~"dropped_.*"'), BY),),
            "percentunit",
        ),
        Panel(
            "share late",
            "answered after the deadline (packing: see its targets)",
            (Query(_share("pliant_outcomes_total", 'outcome="late"'), BY),),
            "percentunit",
        ),
        Panel("waiting", "requests without a device", (Query(f"sum by (system) (pliant_waiting{_SEEN})", BY),)),
        Panel(
            "seconds in the queue, 95%",
            "from arrival to launch",
            (Query(_quantile("pliant_queue_seconds", 0.95), BY),),
            "s",
        ),
        Panel(
            "refused",
            "requests answered with an error, per second, by code",
            (Query(f"{_rate('pliant_refusals_total', 'code')} or vector(0)", f"{BY} {{{{code}}}}"),),
        ),
    ),
    "Is it right?": (
        Panel(
            "polls of the registry",
            "per second, by outcome",
            (Query(_rate("pliant_refreshes_total", "outcome"), f"{BY} {{{{outcome}}}}"),),
            after="a poll",
        ),
        Panel(
            "changed streams",
            "now, against what was usual when the release was taken up",
            (Query(f"sum by (system) (pliant_drift{_SEEN}) or vector(0)", BY),),
        ),
        Panel(
            "broken promises",
            "of accuracy, by later labels, now",
            (Query(f"sum by (system) (pliant_promise_broken{_SEEN}) or vector(0)", BY),),
        ),
        Panel(
            "events",
            "in an hour: alarms, promotions, trials taken back",
            (
                Query(
                    f"sum by (system, event) (increase(pliant_events_total{_SEEN}[1h])) or vector(0)",
                    f"{BY} {{{{event}}}}",
                ),
            ),
        ),
        Panel(
            "events that wait", "for Prefect's server", (Query(f"sum by (system) (pliant_events_waiting{_SEEN})", BY),)
        ),
    ),
}
"""What is looked at first, for all systems."""


@dataclass(frozen=True, slots=True)
class DashboardQuery:
    """A query of a panel, with nothing left to fill in. `after`: what has to happen before it has data."""

    dashboard: str
    panel: str
    expr: str
    after: str


def dashboards() -> dict[str, str]:
    """Return the content of every dashboard's file, by its name."""
    everything = dashboard("pliant-overview", "Pliant", OVERVIEW, variables('job="pliant"'))
    files = {"overview": everything}
    for system in all_metrics():
        files[system] = dashboard(
            f"pliant-{system}", f"Pliant: {system}", rows(system, drawn_of(system)), variables(f'system="{system}"')
        )
    return {f"{name}.json": json.dumps(content, indent=1) + "\n" for name, content in files.items()}


def rows(system: str, metrics: Iterable[Metric]) -> dict[str, list[Panel]]:
    """Return the panels of a system by their headings, in the order of the list."""
    headed: dict[str, list[Panel]] = {}
    for metric in metrics:
        headed.setdefault(metric.part, []).append(panel_of(metric, system))
    return headed


def queries(interval: str = "5m", instance: str = ".*") -> list[DashboardQuery]:
    """Return every query of every dashboard with its variables filled in: the time of a rate, and the instances."""
    listed: list[tuple[str, Panel]] = [("overview", panel) for panels in OVERVIEW.values() for panel in panels]
    for system in all_metrics():
        listed += [(system, panel) for panels in rows(system, drawn_of(system)).values() for panel in panels]
    return [
        DashboardQuery(
            name, panel.title, query.expr.replace(RATE, interval).replace("$instance", instance), panel.after
        )
        for name, panel in listed
        for query in panel.queries
    ]
