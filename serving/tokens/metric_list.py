"""The metrics of the tokens service, as docs/metrics.md shows them."""

from __future__ import annotations

from pliant.serving.monitoring.metric_list import COMMON, REGISTRY, Metric, driven, labelled

METRICS = (
    *driven("gamma", ("task_version", "backbone_version", "profile_version")),
    *COMMON,
    Metric("pliant_pins", "gauge", "tasks", REGISTRY, "that are pinned to a version", across="max"),
    *labelled("operating_point"),
)
