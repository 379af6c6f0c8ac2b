"""docs/metrics.md, written from the list of metrics."""

from __future__ import annotations

from collections.abc import Mapping

from serving.monitoring.metric_list import Metric, all_metrics, text_of

HEAD = """# Metrics

Written by `python -m serving.monitoring` from the lists in the code; a test holds both to what services register.

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
