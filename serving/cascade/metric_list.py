"""The metrics of the cascade service, as docs/metrics.md shows them."""

from __future__ import annotations

from pliant.serving.monitoring.metric_list import COMMON, LABELS, Metric, driven, labelled

METRICS = (
    *driven("model", ("task_version", "candidate", "level", "reason")),
    *COMMON,
    Metric(
        "pliant_agreement_total",
        "counter",
        "answers",
        LABELS,
        "of a small model that the large one read again in idle moments: `agrees`, `differs`",
        ("task", "candidate", "result"),
        after="an early answer that was compared (1% are, where the devices are idle)",
        is_event=True,
    ),
    *labelled("candidate", "level"),
)
