"""The metrics of the bins service, as docs/metrics.md shows them."""

from __future__ import annotations

from pliant.serving.monitoring.metric_list import COMMON, driven

METRICS = (*driven("bin", ("stream_version", "bin")), *COMMON)
