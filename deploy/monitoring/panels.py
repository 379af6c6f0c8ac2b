"""Queries of Prometheus for the metrics of the list, and the panels of Grafana that draw them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from serving.monitoring.metric_list import RATIO, Metric, samples_of, text_of

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
