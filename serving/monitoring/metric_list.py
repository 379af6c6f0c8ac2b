"""The metrics that services show at /metrics, as a list: name, type, unit, labels and meaning.

What every system has stands here; `METRICS` of `serving/<system>/metric_list.py` is all that a system has. A test holds
the lists against what the services register, in both directions. docs/metrics.md and the dashboards are written from them,
and alerts name nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pliant import systems

Kind = Literal["counter", "gauge", "histogram"]
Across = Literal["sum", "max", "avg"]


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric. `name` is that of its samples: counters end in _total, histograms have _bucket, _sum and _count besides.

    `unit`: what is counted or measured; a ratio is from 0 to 1. `part`: the heading below which it is shown. `across`: how
    the values of several instances are put together. `after`: what has to happen before it has a sample, if more than
    requests; `is_event`: this may never happen, so no sample means zero. `grows`: a gauge that only grows, until its process
    ends. `by`: the labels that a picture keeps apart; None: all.
    """

    name: str
    kind: Kind
    unit: str
    part: str
    meaning: str
    labels: tuple[str, ...] = ()
    across: Across = "sum"
    after: str = ""
    is_event: bool = False
    grows: bool = False
    by: tuple[str, ...] | None = None


RATIO, SWITCH = "ratio", "0 or 1"
REQUESTS, DEVICES, REGISTRY = "Requests", "Devices", "Registry"
DOOR, DISK = "Encryption", "Disk"
TENANTS, CHANGE, LABELS = "Tenants", "Changes in traffic", "Labels and promises"

COMMON = (
    Metric(
        "pliant_refusals_total",
        "counter",
        "requests",
        REQUESTS,
        "answered with an error, by its code",
        ("code",),
        after="an error",
        is_event=True,
    ),
    Metric("pliant_ready", "gauge", SWITCH, DEVICES, "1 if the service is ready as /readyz says", across="sum"),
    Metric("pliant_worker_failures_total", "counter", "processes", DEVICES, "of devices or engines that died or hung"),
    Metric(
        "pliant_refreshes_total",
        "counter",
        "polls",
        REGISTRY,
        "of the registry, by outcome: `unchanged`, `changed`, `held` (what was published cannot be served), `failed`",
        ("outcome",),
        after="a poll",
    ),
    Metric(
        "pliant_tls_certificate_expiry_timestamp_seconds",
        "gauge",
        "seconds",
        DOOR,
        "since 1970 at which the service's own certificate expires; `source` is always `service`",
        ("source",),
        across="max",
        after="a start with a certificate",
    ),
    Metric(
        "pliant_tenant_arrivals_total",
        "counter",
        "requests",
        TENANTS,
        "of HTTP with a valid key; without keys the tenant is empty",
        ("tenant",),
    ),
    Metric(
        "pliant_tenant_answers_total",
        "counter",
        "requests",
        TENANTS,
        "of HTTP that were answered, by status",
        ("tenant", "status"),
    ),
    Metric(
        "pliant_tenant_refusals_total",
        "counter",
        "requests",
        TENANTS,
        "beyond the tenant's own limits, by the error's code",
        ("tenant", "code"),
        after="a tenant beyond its limits",
        is_event=True,
    ),
    Metric("pliant_tenant_waiting", "gauge", "requests", TENANTS, "of HTTP without an answer now", ("tenant",)),
    Metric(
        "pliant_tenant_seconds_total",
        "counter",
        "seconds",
        TENANTS,
        "of devices, for the first 256 tenants by name and for all further ones as `others`",
        ("tenant",),
        after="a request whose key names a tenant",
        is_event=True,
    ),
    Metric(
        "pliant_tenant_outcomes_total",
        "counter",
        "requests",
        TENANTS,
        "answered or dropped: `answered`, `dropped_late`, `dropped_full`, `dropped_failed` (packing: outputs)",
        ("tenant", "outcome"),
        after="a request whose key names a tenant",
        is_event=True,
    ),
    Metric(
        "pliant_drift",
        "gauge",
        SWITCH,
        CHANGE,
        "1 if a stream has changed since the release was taken up",
        ("stream",),
        across="max",
        after="the first look of the watch at answers",
    ),
    Metric(
        "pliant_drift_evidence",
        "gauge",
        RATIO,
        CHANGE,
        "evidence that a stream has changed, as a share of what raises an alarm, on a logarithmic scale",
        ("stream",),
        across="max",
        after="the first look of the watch at answers",
    ),
    Metric(
        "pliant_drift_alarms_total",
        "counter",
        "alarms",
        CHANGE,
        "over changed streams",
        ("stream",),
        after="an alarm",
        is_event=True,
    ),
    Metric(
        "pliant_estimated_accuracy",
        "gauge",
        RATIO,
        CHANGE,
        "accuracy of the latest answers, estimated without labels from calibrated confidences",
        ("stream",),
        across="avg",
        after="answers of a classifier that the watch has looked at",
    ),
    Metric(
        "pliant_events_total",
        "counter",
        "events",
        CHANGE,
        "by name: `pliant.alarm`, `pliant.promise-broken`, `pliant.champion` (promoted here), `pliant.rollback` (a "
        "trial was taken back here)",
        ("event",),
        after="an event",
        is_event=True,
    ),
    Metric(
        "pliant_events_waiting",
        "gauge",
        "events",
        CHANGE,
        "that Prefect's server has not taken yet, beyond 1,000 the oldest are given up",
        across="sum",
    ),
    Metric(
        "pliant_write_failing",
        "gauge",
        SWITCH,
        DISK,
        "1 while files cannot be written, as on a full disk: `journal` (not that of packing), `observed`, `outcomes` "
        "(labels, too), `inputs`, `watch`, `trials`, `events`",
        ("what",),
        across="max",
        is_event=True,
    ),
)
"""What the service of every system has."""


def driven(setting: str, origins: tuple[str, ...]) -> tuple[Metric, ...]:
    """Return what a system has whose requests go through serving/driver.py; the arguments are those of `Metrics`."""
    return (
        Metric("pliant_arrivals_total", "counter", "requests", REQUESTS, "that reached the scheduler", ("task",)),
        Metric(
            "pliant_outcomes_total",
            "counter",
            "requests",
            REQUESTS,
            "by what became of them: `on_time`, `late`, `dropped_late`, `dropped_full`, `dropped_failed`",
            ("task", "outcome"),
        ),
        Metric(
            "pliant_answers_total",
            "counter",
            "requests",
            REQUESTS,
            "answered, by the versions and settings that gave the answer",
            ("task", *origins),
            by=("task", origins[0]),
        ),
        Metric("pliant_cancelled_total", "counter", "requests", REQUESTS, "whose client left before the answer"),
        Metric("pliant_waiting", "gauge", "requests", REQUESTS, "that no device has in hand"),
        Metric(
            "pliant_queue_seconds", "histogram", "seconds", REQUESTS, "from arrival to launch, per answered request"
        ),
        Metric("pliant_run_seconds", "histogram", "seconds", DEVICES, "on the device, per launch"),
        Metric("pliant_batch_size", "histogram", "requests", DEVICES, "per launch"),
        Metric("pliant_launches_total", "counter", "launches", DEVICES, f"by {setting}", (setting,)),
        Metric(
            "pliant_model_errors_total",
            "counter",
            "launches",
            DEVICES,
            "in which the model raised an error; the process goes on, and a bad request fails alone",
        ),
        Metric(
            "pliant_fallbacks_total",
            "counter",
            "fallbacks",
            DEVICES,
            "to a slower way since a better one failed: `capture` (of a CUDA graph), `package`, `memory`, `precision`",
            ("kind",),
            after="a fallback",
            is_event=True,
        ),
        Metric(
            "pliant_scheduler_restarts_total",
            "counter",
            "errors",
            DEVICES,
            "of the scheduler, after which a fresh one went on with what was pending",
        ),
    )


def labelled(candidate: str, *level: str) -> tuple[Metric, ...]:
    """Return what a system has that takes labels; the arguments are those of `Names` (serving/outcomes/written.py)."""
    by_level, after = (candidate, *level), "a label"
    return (
        Metric(
            "pliant_labels_total",
            "counter",
            "labels",
            LABELS,
            "reported, by whether the answer was correct",
            ("task", *by_level, "correct"),
            after=after,
            is_event=True,
            by=("task", "correct"),
        ),
        Metric(
            "pliant_calibration_error",
            "gauge",
            RATIO,
            LABELS,
            "expected calibration error of labelled answers, in 15 bins",
            ("task", "version", *by_level),
            across="max",
            after=after,
        ),
        Metric(
            "pliant_promise_broken",
            "gauge",
            SWITCH,
            LABELS,
            "1 if the accuracy is below the promised one",
            ("task", "version", candidate),
            across="max",
            after=after,
        ),
        Metric(
            "pliant_alarms_total",
            "counter",
            "alarms",
            LABELS,
            "over broken promises, by event: `raised`, `taken_back`",
            ("task", "event"),
            after="an alarm",
            is_event=True,
        ),
    )


def metrics_of(system: str) -> tuple[Metric, ...]:
    """Return all metrics that the service of a system registers, besides BentoML's own. Raises `InputError`."""
    metrics: tuple[Metric, ...] = systems.system(system).part("serving", "metric_list").METRICS
    return metrics


def all_metrics() -> Mapping[str, tuple[Metric, ...]]:
    """Return the metrics of every system that has a list of them, by system."""
    return {system.name: metrics_of(system.name) for system in systems.listed() if system.has("serving", "metric_list")}


def drawn_of(system: str) -> tuple[Metric, ...]:
    """Return the metrics of a system that its dashboard shows: all but `NOT_DRAWN` of its list. Raises `InputError`."""
    module = systems.system(system).part("serving", "metric_list")
    hidden: tuple[str, ...] = getattr(module, "NOT_DRAWN", ())
    return tuple(metric for metric in metrics_of(system) if metric.name not in hidden)


def text_of(metric: Metric) -> str:
    """Return what a metric counts or measures, in words."""
    return f"{metric.unit}{': ' if metric.unit in (RATIO, SWITCH) else ' '}{metric.meaning}"


def samples_of(metric: Metric) -> tuple[str, ...]:
    """Return the names of a metric's samples, as queries use them."""
    if metric.kind == "histogram":
        return tuple(f"{metric.name}_{part}" for part in ("bucket", "sum", "count"))
    return (metric.name,)
