"""The metrics of the cascade service, as docs/metrics.md shows them."""

from __future__ import annotations

from pliant.serving.monitoring.metric_list import COMMON, LABELS, counter, driven, labelled

ORIGINS = ("task_version", "candidate", "level", "reason")
"""Labels of the metric pliant_answers."""
AGREEMENT = (
    counter(
        "agreement",
        LABELS,
        "answers",
        "of a small model that the large one read again in idle moments: `agrees`, `differs`",
        *("task", "candidate", "result"),
        event="an early answer that was compared (1% are, where the devices are idle)",
    ),
)
METRICS = (*driven("model", ORIGINS), *COMMON, *AGREEMENT, *labelled("candidate", "level"))
