"""Writes Grafana's dashboards and docs/metrics.md anew from the list of metrics: `python -m deploy.dashboards`.

There is an overview of all systems, and a dashboard for each. `queries` gives every expression in them, for whoever wants to
know whether a Prometheus has data for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
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
class Query:
    """An expression in Prometheus' language. `legend` names its series, by Grafana's rules; empty: Grafana chooses."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """A picture. `unit`: Grafana's name of it. `after`: what has to happen before the queries have data; empty: requests."""

    title: str
    description: str
    queries: tuple[Query, ...]
    unit: str = "short"
    after: str = ""


def panel_of(metric: Metric, system: str) -> Panel:
    """Return the picture of a metric of a system: what happened per second, what is now, or quantiles."""
    unit = UNITS.get(metric.unit, "short")
    description = f"{text_of(metric)} ({metric.name})"
    title = metric.name.removeprefix("pliant_").removesuffix("_total").replace("_", " ")
    if metric.kind == "counter" or metric.grows:
        title += " in an hour" if metric.is_event else " per second"
    after = "" if metric.is_event else metric.after
    return Panel(title, description, tuple(_queries(metric, _selector(system))), unit, after)


def _selector(system: str) -> str:
    return f'{{system="{system}",instance=~"$instance"}}'


def _queries(metric: Metric, selector: str) -> Iterable[Query]:
    labels = metric.labels if metric.by is None else metric.by
    legend = " ".join(f"{{{{{label}}}}}" for label in labels)
    (series, *_) = samples_of(metric)
    match metric.kind:
        case "histogram":
            for quantile in QUANTILES:
                rate = f"sum by ({', '.join(('le', *labels))}) (rate({series}{selector}[{RATE}]))"
                yield Query(f"histogram_quantile({quantile}, {rate})", f"{legend} {quantile:.0%}".strip())
        case "counter" if metric.is_event:
            # A counter with labels has no series before its first event: without a series nothing has happened.
            yield Query(f"{_put_together('sum', labels)}(increase({series}{selector}[1h])) or vector(0)", legend)
        case "counter" | "gauge" if metric.kind == "counter" or metric.grows:
            yield Query(f"{_put_together('sum', labels)}(rate({series}{selector}[{RATE}]))", legend)
        case _:
            yield Query(f"{_put_together(metric.across, labels)}({series}{selector})", legend)


def _put_together(how: str, labels: Sequence[str]) -> str:
    return f"{how} by ({', '.join(labels)}) " if labels else how


def dashboard(uid: str, title: str, rows: Mapping[str, Sequence[Panel]], variables: Sequence[Any]) -> dict[str, Any]:
    """Return a dashboard as Grafana reads it: a row a heading, with its panels below, three side by side."""
    drawn: list[dict[str, Any]] = []
    y = 0
    for heading, panels in rows.items():
        place = {"h": 1, "w": 24, "x": 0, "y": y}
        drawn.append({"type": "row", "title": heading, "collapsed": False, "gridPos": place, "panels": []})
        y += 1
        for number, panel in enumerate(panels):
            line, column = divmod(number, COLUMNS)
            place = {"h": HEIGHT, "w": WIDTH, "x": column * WIDTH, "y": y + line * HEIGHT}
            drawn.append({**_drawn(panel), "gridPos": place})
        y += -(-len(panels) // COLUMNS) * HEIGHT
    return {
        "uid": uid,
        "title": title,
        "tags": ["pliant"],
        "timezone": "browser",
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": list(variables)},
        "panels": [{"id": number, **each} for number, each in enumerate(drawn, 1)],
    }


def _drawn(panel: Panel) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + number), "expr": query.expr, "legendFormat": query.legend or "__auto"}
        for number, query in enumerate(panel.queries)
    ]
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": dict(DATASOURCE),
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": targets,
    }


def variables(selector: str) -> tuple[dict[str, Any], ...]:
    """Return the choices at the head of a dashboard: the source of data, and instances that `up{selector}` has."""
    query = f"label_values(up{{{selector}}}, instance)"
    return (
        {"type": "datasource", "name": "datasource", "label": "Prometheus", "query": "prometheus"},
        {
            "type": "query",
            "name": "instance",
            "label": "Instance",
            "datasource": dict(DATASOURCE),
            "query": query,
            "refresh": 2,
            "includeAll": True,
            "allValue": ".*",
            "multi": True,
            "current": {"text": "All", "value": "$__all"},
        },
    )


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


HEAD = """# Metrics

Written by `python -m deploy.dashboards` from the lists in the code; a test holds both to what services register.

Every service shows its metrics at `/metrics` in Prometheus' text format, where there are keys to the role `monitor`
([who may call a service](operations.md#who-may-call-a-service)). They begin at 0 with each start. Counters end in `_total`,
units are seconds and counts; ratios lie between 0 and 1. The label `task` is what requests are addressed to: a task of
tokens or cascade, a stream of bins, a model of packing. The scraper adds the label `system`. A series appears with its first
event. BentoML's own metrics by path are switched off, since anybody could make series of them.
"""


def page() -> str:
    """Return the content of docs/metrics.md."""
    listed = all_metrics()
    shared = {metric for metric in next(iter(listed.values())) if all(metric in each for each in listed.values())}
    sections = [HEAD, "\n## Every system\n\n", _table([each for each in next(iter(listed.values())) if each in shared])]
    for system, metrics in _grouped({name: [m for m in each if m not in shared] for name, each in listed.items()}):
        sections += [f"\n## {system}\n\n", _table(metrics)]
    return "".join(sections)


def _grouped(own: Mapping[str, list[Metric]]) -> list[tuple[str, list[Metric]]]:
    """Return the metrics by the systems that have them, those that several have first."""
    by_systems: dict[tuple[str, ...], list[Metric]] = {}
    for metrics in own.values():
        for metric in metrics:
            having = tuple(name for name, each in own.items() if metric in each)
            if metric not in by_systems.setdefault(having, []):
                by_systems[having].append(metric)
    ordered = sorted(by_systems.items(), key=lambda item: -len(item[0]))
    return [(", ".join(systems), metrics) for systems, metrics in ordered]


def _table(metrics: list[Metric]) -> str:
    lines = ["| metric | type, by labels | what |", "|---|---|---|"]
    for metric in metrics:
        kind = f"{metric.kind} by {', '.join(metric.labels)}" if metric.labels else metric.kind
        lines.append(f"| `{metric.name}` | {kind} | {text_of(metric)} |")
    return "\n".join(lines) + "\n"


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
