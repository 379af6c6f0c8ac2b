"""The metrics of the tokens service, as docs/metrics.md shows them."""

from __future__ import annotations

from pliant.serving.monitoring.metric_list import COMMON, POLLS, driven, gauge, labelled

ORIGINS = ("task_version", "backbone_version", "profile_version")
"""Labels of the metric pliant_answers."""
PINS = (gauge("pins", POLLS, "tasks", "that are pinned to a version", across="max", processes="livemax"),)
METRICS = (*driven("gamma", ORIGINS), *COMMON, *PINS, *labelled("operating_point"))
