"""Writes Grafana's dashboards and docs/metrics.md anew from the list of metrics: `python -m deploy.dashboards`.

There is an overview of all systems, and a dashboard for each. `queries` gives every expression in them, for whoever wants to
know whether a Prometheus has data for it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pliant.serving.monitoring.metric_list import RATIO, Metric, all_metrics, drawn_of, samples_of, text_of

ROOT = Path(__file__).resolve().parents[1]
DASHBOARDS = ROOT / "deploy" / "monitoring" / "grafana" / "dashboards"
PAGE = ROOT / "docs" / "metrics.md"
DATASOURCE: Mapping[str, str] = {"type": "prometheus", "uid": "${datasource}"}
RATE = "$__rate_interval"
"""Grafana's word for a time in which every series has some samples."""
QUANTILES = (0.5, 0.95, 0.99)
COLUMNS, WIDTH, HEIGHT = 3, 8, 8  # of 24 columns that a dashboard has
UNITS: Mapping[str, str] = {"seconds": "s", RATIO: "percentunit"}


@dataclass(frozen=True, slots=True)
class Panel:
    """A picture. `queries`: expression in Prometheus' language -> what names its series, by Grafana's rules; empty: Grafana
    chooses. `unit`: Grafana's name of it. `after`: what has to happen before the queries have data; empty: requests."""

    title: str
    description: str
    queries: Mapping[str, str]
    unit: str = "short"
    after: str = ""


def panel_of(metric: Metric, system: str) -> Panel:
    """Return the picture of a metric of a system: what happened per second, what is now, or quantiles."""
    selector, labels = f'{{system="{system}",instance=~"$instance"}}', metric.labels if metric.by is None else metric.by
    title = metric.name.removeprefix("pliant_").removesuffix("_total").replace("_", " ")
    legend = " ".join(f"{{{{{label}}}}}" for label in labels)
    by = f" by ({', '.join(labels)}) " if labels else ""
    (series, *_) = samples_of(metric)
    queries = {}
    if metric.kind == "histogram":
        rate = f"sum by ({', '.join(('le', *labels))}) (rate({series}{selector}[{RATE}]))"
        queries = {f"histogram_quantile({each}, {rate})": f"{legend} {each:.0%}".strip() for each in QUANTILES}
    elif metric.kind == "counter" and metric.is_event:
        # A counter with labels has no series before its first event: without a series nothing has happened.
        queries[f"sum{by}(increase({series}{selector}[1h])) or vector(0)"] = legend
        title += " in an hour"
    elif metric.kind == "counter" or metric.grows:
        queries[f"sum{by}(rate({series}{selector}[{RATE}]))"] = legend
        title += " in an hour" if metric.is_event else " per second"
    else:
        queries[f"{metric.across}{by}({series}{selector})"] = legend
    after = "" if metric.is_event else metric.after
    return Panel(title, f"{text_of(metric)} ({metric.name})", queries, UNITS.get(metric.unit, "short"), after)


def dashboard(uid: str, title: str, rows: Mapping[str, Sequence[Panel]], selector: str) -> dict[str, Any]:
    """Return a dashboard as Grafana reads it: a row a heading, with its panels below, three side by side.

    At its head are choices: the source of data, and instances that `up{selector}` has.
    """
    drawn: list[dict[str, Any]] = []
    y = 0
    for heading, panels in rows.items():
        place = {"h": 1, "w": 24, "x": 0, "y": y}
        drawn.append({"type": "row", "title": heading, "collapsed": False, "gridPos": place, "panels": []})
        y += 1
        for number, panel in enumerate(panels):
            line, column = divmod(number, COLUMNS)
            targets = [
                {"refId": chr(ord("A") + position), "expr": expr, "legendFormat": legend or "__auto"}
                for position, (expr, legend) in enumerate(panel.queries.items())
            ]
            drawn.append(
                {
                    "type": "timeseries",
                    "title": panel.title,
                    "description": panel.description,
                    "datasource": dict(DATASOURCE),
                    "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
                    "targets": targets,
                    "gridPos": {"h": HEIGHT, "w": WIDTH, "x": column * WIDTH, "y": y + line * HEIGHT},
                }
            )
        y += -(-len(panels) // COLUMNS) * HEIGHT
    instances = {
        "type": "query",
        "name": "instance",
        "label": "Instance",
        "datasource": dict(DATASOURCE),
        "query": f"label_values(up{{{selector}}}, instance)",
        "refresh": 2,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }
    source = {"type": "datasource", "name": "datasource", "label": "Prometheus", "query": "prometheus"}
    return {
        "uid": uid,
        "title": title,
        "tags": ["pliant"],
        "timezone": "browser",
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [source, instances]},
        "panels": [{"id": number, **each} for number, each in enumerate(drawn, 1)],
    }


BY = "{{system}}"
_SEEN = '{instance=~"$instance"}'


def _share(outcomes: str) -> str:
    """Return the share of requests with these outcomes; 0 where none has been counted yet."""
    whole = f"sum by (system) (rate(pliant_outcomes_total{_SEEN}[{RATE}]))"
    part = f'sum by (system) (rate(pliant_outcomes_total{{instance=~"$instance",{outcomes}}}[{RATE}]))'
    return f"({part} or 0 * {whole}) / {whole}"


def _rate(name: str, *labels: str) -> str:
    return f"sum by ({', '.join(('system', *labels))}) (rate({name}{_SEEN}[{RATE}]))"


def _sum(name: str, by: str = "") -> str:
    return f"sum by (system{by}) ({name})"


OVERVIEW: Mapping[str, tuple[Panel, ...]] = {
    "Is it there?": (
        Panel(
            "services",
            "up: Prometheus reaches it; ready: a device is up",
            {
                'up{job="pliant"}': f"{BY} {{{{instance}}}} up",
                f"pliant_ready{_SEEN}": f"{BY} {{{{instance}}}} ready",
            },
        ),
        Panel(
            "answers of HTTP by status",
            "per second",
            {_rate("pliant_tenant_answers_total", "status"): f"{BY} {{{{status}}}}"},
        ),
        Panel(
            "failures of processes",
            "device and engine processes that died or hung, in an hour",
            {_sum(f"increase(pliant_worker_failures_total{_SEEN}[1h])"): BY},
        ),
    ),
    "Is it in time?": (
        Panel("requests", "per second (packing: outputs)", {_rate("pliant_arrivals_total"): BY}),
        Panel("share dropped", "of all that had an end", {_share('outcome=~"dropped_.*"'): BY}, "percentunit"),
        Panel(
            "share late",
            "answered after the deadline (packing: see its targets)",
            {_share('outcome="late"'): BY},
            "percentunit",
        ),
        Panel("waiting", "requests without a device", {_sum(f"pliant_waiting{_SEEN}"): BY}),
        Panel(
            "seconds in the queue, 95%",
            "from arrival to launch",
            {f"histogram_quantile(0.95, {_rate('pliant_queue_seconds_bucket', 'le')})": BY},
            "s",
        ),
        Panel(
            "refused",
            "requests answered with an error, per second, by code",
            {f"{_rate('pliant_refusals_total', 'code')} or vector(0)": f"{BY} {{{{code}}}}"},
        ),
    ),
    "Is it right?": (
        Panel(
            "polls of the registry",
            "per second, by outcome",
            {_rate("pliant_refreshes_total", "outcome"): f"{BY} {{{{outcome}}}}"},
            after="a poll",
        ),
        Panel(
            "changed streams",
            "now, against what was usual when the release was taken up",
            {f"{_sum(f'pliant_drift{_SEEN}')} or vector(0)": BY},
        ),
        Panel(
            "broken promises",
            "of accuracy, by later labels, now",
            {f"{_sum(f'pliant_promise_broken{_SEEN}')} or vector(0)": BY},
        ),
        Panel(
            "events",
            "in an hour: alarms, promotions, trials taken back",
            {f"{_sum(f'increase(pliant_events_total{_SEEN}[1h])', ', event')} or vector(0)": f"{BY} {{{{event}}}}"},
        ),
        Panel("events that wait", "for Prefect's server", {_sum(f"pliant_events_waiting{_SEEN}"): BY}),
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
    files = {"overview": dashboard("pliant-overview", "Pliant", OVERVIEW, 'job="pliant"')}
    for system in all_metrics():
        files[system] = dashboard(f"pliant-{system}", f"Pliant: {system}", rows(system), f'system="{system}"')
    return {f"{name}.json": json.dumps(content, indent=1) + "\n" for name, content in files.items()}


def rows(system: str) -> dict[str, list[Panel]]:
    """Return the panels of a system by their headings, in the order of the list."""
    headed: dict[str, list[Panel]] = {}
    for metric in drawn_of(system):
        headed.setdefault(metric.part, []).append(panel_of(metric, system))
    return headed


def queries(interval: str = "5m") -> list[DashboardQuery]:
    """Return every query of every dashboard with its variables filled in: the time of a rate, and all instances."""
    drawn: dict[str, Mapping[str, Sequence[Panel]]] = {"overview": OVERVIEW}
    drawn |= {system: rows(system) for system in all_metrics()}
    return [
        DashboardQuery(name, panel.title, expr.replace(RATE, interval).replace("$instance", ".*"), panel.after)
        for name, headed in drawn.items()
        for panels in headed.values()
        for panel in panels
        for expr in panel.queries
    ]


HEAD = """# Metrics

Written by `python -m deploy.dashboards` from the lists in the code; a test holds both to what services register.

Every service shows its metrics at `/metrics` in Prometheus' text format, where there are keys to the role `monitor`
([who may call a service](operations.md#who-may-call-a-service)). They begin at 0 with each start. Counters end in `_total`,
units are seconds and counts; ratios lie between 0 and 1. The label `task` is what requests are addressed to: a task of
tokens or cascade, a stream of bins, a model of packing. The scraper adds the label `system`. A series appears with its first
event. BentoML's own metrics by path are switched off, since anybody could make series of them.
"""


def page() -> str:
    """Return the content of docs/metrics.md: what every system has, then the rest by the systems that have it."""
    listed = all_metrics()
    having: dict[Metric, list[str]] = {}
    for name, metrics in listed.items():
        for metric in metrics:
            having.setdefault(metric, []).append(name)
    grouped: dict[tuple[str, ...], list[Metric]] = {}
    for metric, names in having.items():
        grouped.setdefault(tuple(names), []).append(metric)
    sections = [HEAD]
    for owners, shown in sorted(grouped.items(), key=lambda item: -len(item[0])):
        title = "Every system" if len(owners) == len(listed) else ", ".join(owners)
        sections.append(f"\n## {title}\n\n| metric | type, by labels | what |\n|---|---|---|\n")
        for metric in shown:
            kind = f"{metric.kind} by {', '.join(metric.labels)}" if metric.labels else metric.kind
            sections.append(f"| `{metric.name}` | {kind} | {text_of(metric)} |\n")
    return "".join(sections)


def main() -> None:
    """Write all files; a dashboard of no system is removed."""
    PAGE.write_text(page(), encoding="utf-8")
    contents = dashboards()
    for name, content in contents.items():
        (DASHBOARDS / name).write_text(content, encoding="utf-8")
    for path in DASHBOARDS.glob("*.json"):
        if path.name not in contents:
            path.unlink()


if __name__ == "__main__":
    main()
