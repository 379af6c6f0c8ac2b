"""Writes Grafana's dashboards and docs/metrics.md anew from the list of metrics: `python -m deploy.dashboards`.

There is an overview of all systems, and a dashboard for each: questions first, then every metric in rows that are closed.
`queries` gives every expression in them, for whoever wants to know whether a Prometheus has data for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path
from typing import Any, Literal

from grafana_foundation_sdk.builders import common as build_common
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders import heatmap, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from pliant.flows.servers import HOST, PORTS
from pliant.serving.monitoring.metric_list import RATIO, Metric, all_metrics, drawn_of, metrics_of, samples_of, text_of

ROOT = Path(__file__).resolve().parents[1]
DASHBOARDS = ROOT / "deploy" / "monitoring" / "grafana" / "dashboards"
PAGE = ROOT / "docs" / "metrics.md"
DATASOURCE = model.DataSourceRef("prometheus", "${datasource}")
RATE = "$__rate_interval"
"""Grafana's word for a time in which every series has some samples."""
QUANTILES = (0.5, 0.95, 0.99)
UNITS: Mapping[str, str] = {"seconds": "s", RATIO: "percentunit"}
PLACES = {name: f"http://{HOST}:{port}" for name, port in {**PORTS, "Docs": 8000}.items()}
"""Boxes at the head, and the addresses in them, which the links lead to."""
GREEN, YELLOW, RED = "green", "yellow", "red"
Steps = Sequence[tuple[float | None, str]]
"""From which value on a figure has which colour; the first has no value."""
GOOD_SHARE: Steps = ((None, RED), (0.9, YELLOW), (0.95, GREEN))
BAD_SHARE: Steps = ((None, GREEN), (0.01, YELLOW), (0.05, RED))
BUSY: Steps = ((None, GREEN), (0.8, YELLOW), (0.95, RED))
READY: Steps = ((None, RED), (1, GREEN))
NONE: Steps = ((None, GREEN), (1, RED))
FAILURES: Steps = ((None, GREEN), (1, YELLOW), (5, RED))
"""Shares as deploy/monitoring/alerts.yaml has them: 5% dropped or late are too many."""


@dataclass(frozen=True, slots=True)
class Panel:
    """A picture. `queries`: expression in Prometheus' language -> what names its series, by Grafana's rules; empty: Grafana
    chooses. `unit`: Grafana's name of it. `after`: what has to happen before the queries have data; empty: requests."""

    title: str
    description: str
    queries: Mapping[str, str]
    unit: str = "short"
    after: str = ""
    kind: Literal["lines", "figure", "heat"] = "lines"
    steps: Steps = ()


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
        title += " per second"
    elif metric.name.endswith("_timestamp_seconds"):
        title = title.removesuffix(" timestamp seconds") + " in"
        queries[f"min{by}({series}{selector}) - time()"] = legend
    else:
        queries[f"{metric.across}{by}({series}{selector})"] = legend
    after = "" if metric.is_event else metric.after
    return Panel(title, f"{text_of(metric)} ({metric.name})", queries, UNITS.get(metric.unit, "short"), after)


def heat_of(metric: Metric, system: str) -> Panel:
    """Return the picture of how a histogram of a system was spread over time."""
    (series, *_) = samples_of(metric)
    expr = f'sum by (le) (increase({series}{{system="{system}",instance=~"$instance"}}[{RATE}]))'
    return replace(panel_of(metric, system), queries={expr: "{{le}}"}, kind="heat")


def drawn(panel: Panel) -> stat.Panel | heatmap.Panel | timeseries.Panel:
    """Return a panel as the SDK builds it: three side by side, or six figures."""
    picture: stat.Panel | heatmap.Panel | timeseries.Panel
    match panel.kind:
        case "figure":
            last = build_common.ReduceDataOptions().calcs(["lastNotNull"])
            picture = stat.Panel().reduce_options(last).color_mode(common.BigValueColorMode.BACKGROUND).height(5)
        case "heat":
            colours = heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Oranges").steps(64)
            picture = heatmap.Panel().color(colours).y_axis(heatmap.YAxisConfig().unit(panel.unit)).height(8)
        case "lines":
            dashed = build_common.GraphThresholdsStyleConfig().mode(common.GraphThresholdsStyleMode.DASHED)
            picture = timeseries.Panel().min(0).thresholds_style(dashed).height(8)
    picture.title(panel.title).description(panel.description).datasource(DATASOURCE).unit(panel.unit)
    picture.span(4 if panel.kind == "figure" else 8)
    steps = [model.Threshold(value, colour) for value, colour in panel.steps or ((None, GREEN),)]
    picture.thresholds(build.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(steps))
    for position, (expr, legend) in enumerate(panel.queries.items()):
        query = prometheus.Dataquery().ref_id(chr(ord("A") + position)).expr(expr).legend_format(legend or "__auto")
        picture.with_target(query.format(PromQueryFormat.HEATMAP) if panel.kind == "heat" else query)
    return picture


Rows = Mapping[str, Sequence[Panel]]
"""Panels by their headings."""


def dashboard(uid: str, title: str, questions: Rows, closed: Rows, selector: str) -> str:
    """Return a dashboard as Grafana reads it: a row a heading, with its panels below; those of `closed` are closed.

    At its head are choices (the source of data, the instances that `up{selector}` has), and links. Events are marked in all
    pictures.
    """
    board = build.Dashboard(title).uid(uid).tags(["pliant"]).timezone("browser").refresh("30s").time("now-1h", "now")
    board.with_variable(build.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    instances = build.QueryVariable("instance").label("Instance").datasource(DATASOURCE)
    instances.query(f"label_values(up{{{selector}}}, instance)").refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
    instances.include_all(True).all_value(".*").multi(True).current(model.VariableOption(text="All", value="$__all"))
    board.with_variable(instances)
    board.link(build.DashboardLink("Pliant").type(model.DashboardLinkType.DASHBOARDS).tags(["pliant"]).keep_time(True))
    for name, address in PLACES.items():
        board.with_variable(build.TextBoxVariable(name.lower()).label(name).default_value(address))
        link = build.DashboardLink(name).type(model.DashboardLinkType.LINK).icon("external link")
        board.link(link.url(f"${{{name.lower()}}}").target_blank(True))
    marks = build.AnnotationQuery().name("Events").datasource(DATASOURCE).enable(True).icon_color("purple")
    board.annotation(marks.expr(events_in(selector)))
    for heading, panels in questions.items():
        board.with_row(build.Row(heading))
        for panel in panels:
            board.with_panel(drawn(panel))
    for heading, panels in closed.items():
        row = build.Row(heading)
        for panel in panels:
            row.with_panel(drawn(panel))
        board.with_row(row)
    content: dict[str, Any] = json.loads(json.dumps(board.build(), cls=JSONEncoder))
    numbers = count(1)
    for shown in content["panels"]:
        for each in (shown, *shown.get("panels", ())):
            each["id"] = next(numbers)
    # The SDK has no field for these; without them Grafana names each event after an alert, which there is none of.
    content["annotations"]["list"][0] |= {"titleFormat": "{{event}}", "textFormat": "{{system}}", "step": "60s"}
    return json.dumps(content, indent=1) + "\n"


def events_in(selector: str) -> str:
    """Return the expression of what happened in the last minute; increase() does not see the first of a kind."""
    series = f"sum by (system, event) (pliant_events_total{{{selector}}})"
    increase = f"sum by (system, event) (increase(pliant_events_total{{{selector}}}[1m])) > 0"
    return f"{increase} or ({series} unless sum by (system, event) (pliant_events_total{{{selector}}} offset 1m))"


BY = "{{system}}"


@dataclass(frozen=True, slots=True)
class Seen:
    """Expressions of the series that a selector of labels gives, each by system."""

    selector: str

    def sum(self, name: str) -> str:
        return f"sum by (system) ({name}{{{self.selector}}})"

    def rate(self, name: str, *labels: str, of: str = "") -> str:
        """Return what a metric grows by a second. `of`: a further selector."""
        return f"sum by ({', '.join(('system', *labels))}) (rate({name}{{{self.selector}{of}}}[{RATE}]))"

    def in_an_hour(self, name: str, *labels: str) -> str:
        return self.rate(name, *labels).replace("(rate(", "(increase(").replace(RATE, "1h")

    def share(self, outcomes: str) -> str:
        """Return the share of requests with these outcomes; 0 where none has been counted yet."""
        whole, part = (self.rate("pliant_outcomes_total", of=of) for of in ("", f',outcome=~"{outcomes}"'))
        return f"({part} or 0 * {whole}) / {whole}"

    def attainment(self) -> str:
        """Return the share of requests that were answered in time; packing knows it of what has targets alone."""
        selectors = (',outcome!="cancelled"', ',outcome=~"on_time|stop|length"')
        whole, part = (self.rate("pliant_outcomes_total", of=of) for of in selectors)
        missed = self.rate("pliant_targets_total", of=',kept="false"')
        return f"(({part} or 0 * {whole}) - ({missed} or 0 * {whole})) / {whole}"

    def busy(self) -> str:
        """Return the share of the time in which devices ran."""
        ran = f"{self.rate('pliant_run_seconds_sum')} or {self.rate('pliant_engine_busy_seconds')}"
        return f"({ran}) / {self.sum('pliant_devices')}"

    def ready(self) -> str:
        """Return 1 where all services answer and have a device, else 0."""
        up = f'min by (system) (up{{job="pliant",{self.selector}}})'
        return f"{up} * min by (system) (pliant_ready{{{self.selector}}}) or {up}"


def lines(title: str, description: str, query: str, *labels: str, unit: str = "short", after: str = "") -> Panel:
    return Panel(title, description, {query: " ".join([BY, *(f"{{{{{label}}}}}" for label in labels)])}, unit, after)


def figure(title: str, description: str, steps: Steps, queries: Mapping[str, str], unit: str = "percentunit") -> Panel:
    return Panel(title, description, queries, unit, kind="figure", steps=steps)


def questions(selector: str, metrics: Iterable[Metric]) -> dict[str, Sequence[Panel]]:
    """Return what is asked first, of all systems or of a single one; `metrics`: those that there are."""
    seen, names = Seen(selector), {metric.name for metric in metrics}
    changes = {"pliant_drift": f"{BY} changed", "pliant_promise_broken": f"{BY} broken"}
    changes = {f"{seen.sum(name)} or vector(0)": legend for name, legend in changes.items() if name in names}
    died, offered = {seen.in_an_hour("pliant_worker_failures_total"): BY}, seen.rate("pliant_utility_offered_total")
    utility = {offered: f"{BY} offered", seen.rate("pliant_utility_earned_total"): f"{BY} earned"}
    attained, busy, ran = {seen.attainment(): BY}, {seen.busy(): BY}, "share of the time in which devices ran"
    goal: Steps = ((None, "transparent"), (0.95, GREEN))
    return {
        "Is it well?": [
            figure("Ready", "services answer and have devices", READY, {seen.ready(): BY}, "bool_yes_no"),
            figure("Answered in time", "of all requests", GOOD_SHARE, attained),
            figure("Dropped", "of all requests", BAD_SHARE, {seen.share("dropped_.*"): BY}),
            figure("Devices busy", f"{ran}; near 100% requests wait", BUSY, busy),
            figure("Changes", "streams unlike before, and broken promises of accuracy, now", NONE, changes, "short"),
            figure("Failures", "processes that died or hung, in an hour", FAILURES, died, "short"),
        ],
        "Is it in time, and what is it worth?": [
            Panel("Attainment", "requests answered in time, over its target", attained, "percentunit", steps=goal),
            Panel("Utility", "per second: of what had an end, and of what was in time, right or wrong", utility),
            Panel("Busy", ran, busy, "percentunit"),
        ],
    }


def _overview() -> dict[str, Sequence[Panel]]:
    """Return what is looked at first, for all systems."""
    seen = Seen('instance=~"$instance"')
    seconds, events = seen.rate("pliant_request_seconds_bucket", "le"), seen.in_an_hour("pliant_events_total", "event")
    quantiles = {f"histogram_quantile({each}, {seconds})": f"{BY} {each:.0%}" for each in QUANTILES}
    answers, refused = seen.rate("pliant_tenant_answers_total", "status"), seen.rate("pliant_refusals_total", "code")
    polls = seen.rate("pliant_refreshes_total", "outcome")
    return {
        **questions(seen.selector, chain(*all_metrics().values())),
        "How long does it take?": [
            lines("Requests", "per second (packing: outputs)", seen.rate("pliant_arrivals_total")),
            Panel("Seconds of an answer", "from the socket to the answer", quantiles, "s"),
            lines("Waiting", "requests without a device", seen.sum("pliant_waiting")),
        ],
        "Who is refused, and why?": [
            lines("Answers of HTTP", "per second, by status", answers, "status"),
            lines("Refused", "requests answered with an error, per second", f"{refused} or vector(0)", "code"),
            lines("Late", "of all requests (packing: see Attainment)", seen.share("late"), unit="percentunit"),
        ],
        "What did it do by itself?": [
            lines("Polls of the registry", "per second, by outcome", polls, "outcome", after="a poll"),
            lines("Events", "in an hour: alarms, promotions, trials taken back", f"{events} or vector(0)", "event"),
            lines("Events that wait", "for Prefect's server", seen.sum("pliant_events_waiting")),
        ],
    }


def _system(system: str) -> dict[str, Sequence[Panel]]:
    """Return the questions of a system's dashboard."""
    spread = [each for each in drawn_of(system) if each.kind == "histogram" and each.unit == "seconds"]
    how_long = [heat_of(metric, system) for metric in spread]
    return {
        **questions(f'system="{system}",instance=~"$instance"', metrics_of(system)),
        "How long does it take?": how_long,
    }


@dataclass(frozen=True, slots=True)
class DashboardQuery:
    """A query of a panel, with nothing left to fill in. `after`: what has to happen before it has data."""

    dashboard: str
    panel: str
    expr: str
    after: str


def dashboards() -> dict[str, str]:
    """Return the content of every dashboard's file, by its name."""
    files = {"overview": dashboard("pliant-overview", "Pliant", _overview(), {}, 'job="pliant"')}
    for system in all_metrics():
        selector = f'system="{system}"'
        files[system] = dashboard(f"pliant-{system}", f"Pliant: {system}", _system(system), rows(system), selector)
    return {f"{name}.json": content for name, content in files.items()}


def rows(system: str) -> dict[str, list[Panel]]:
    """Return the panels of a system by their headings, in the order of the list."""
    headed: dict[str, list[Panel]] = {}
    for metric in drawn_of(system):
        headed.setdefault(metric.part, []).append(panel_of(metric, system))
    return headed


def queries(interval: str = "5m") -> list[DashboardQuery]:
    """Return every query of every dashboard with its variables filled in: the time of a rate, and all instances."""
    drawn: dict[str, Sequence[Rows]] = {"overview": [_overview()]}
    drawn |= {system: [_system(system), rows(system)] for system in all_metrics()}
    return [
        DashboardQuery(name, panel.title, expr.replace(RATE, interval).replace("$instance", ".*"), panel.after)
        for name, parts in drawn.items()
        for headed in parts
        for panels in headed.values()
        for panel in panels
        for expr in panel.queries
    ]


HEAD = """# Metrics

Written by `python -m deploy.dashboards` from the lists in the code, which a test holds services to.

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
