"""The metrics of the bins service, as docs/metrics.md shows them."""

from __future__ import annotations

from pliant.serving.monitoring.metric_list import COMMON, driven

ORIGINS = ("stream_version", "bin")
"""Labels of the metric pliant_answers."""
METRICS = (*driven("bin", ORIGINS), *COMMON)
