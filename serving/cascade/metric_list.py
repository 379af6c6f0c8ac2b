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
        "of early levels that the large model read as well: `agrees`, `differs`, or `missed` where it found no time",
        *("task", "candidate", "result"),
        event="an early answer that was audited (1% are)",
    ),
)
METRICS = (*driven("model", ORIGINS), *COMMON, *AGREEMENT, *labelled("candidate", "level"))
