"""docs/metrics.md, written from the list of metrics."""

from __future__ import annotations

from collections.abc import Mapping

from serving.monitoring.metric_list import Metric, all_metrics, text_of

HEAD = """# Metrics

Written by `python -m deploy.monitoring` from the lists in the code (`serving/monitoring/metric_list.py`,
`serving/SYSTEM/metric_list.py`); a test holds both to what services register.

Every service shows them at `/metrics`, in Prometheus' text format. Where there are keys, that path needs a key of the role
`monitor` ([who may call a service](operations.md#who-may-call-a-service)). They are counted in the memory of the process
that serves HTTP, and begin at 0 with its start. [Monitoring](operations.md#metrics) says what to look at, and
deploy/monitoring has rules for alerts, a configuration of Prometheus and dashboards.

- *Names*. Units are seconds and plain counts; counters end in `_total`, histograms have `_bucket`, `_sum` and `_count`. Some
  names are older than this list and stay, since dashboards of others may use them: the ratios, from 0 to 1, do not end in
  `_ratio`, and `pliant_engine_*` are gauges although they only grow while an engine lives (`rate` may be used on them).
- *Labels*. `task` is the name that requests are addressed to: a task of tokens or cascade, a stream of bins, a model of
  packing. No metric names its system: the scraper adds the label `system`, as deploy/monitoring/prometheus.yaml does. A
  metric with labels has a series a combination, from its first use on. *After* says what has to happen before, if more
  than the requests that it counts.
"""
TAIL = """
## BentoML

BentoML's own metrics by path, `bentoml_service_...`, are switched off: their label `endpoint` is the path as it was asked
for, so that anybody could make series, each of which takes memory as long as the service lives. prometheus.yaml drops them,
too.
"""


def page() -> str:
    """Return the content of docs/metrics.md."""
    listed = all_metrics()
    shared = {metric for metric in next(iter(listed.values())) if all(metric in each for each in listed.values())}
    sections = [HEAD, "\n## Every system\n\n", _table([each for each in next(iter(listed.values())) if each in shared])]
    for system, metrics in _grouped({name: [m for m in each if m not in shared] for name, each in listed.items()}):
        sections += [f"\n## {system}\n\n", _table(metrics)]
    return "".join([*sections, TAIL])


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
    lines = ["| metric | type | labels | what | after |", "|---|---|---|---|---|"]
    for metric in metrics:
        cells = [f"`{metric.name}`", metric.kind, ", ".join(metric.labels), text_of(metric), metric.after]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
