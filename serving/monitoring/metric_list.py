"""The metrics that services show at /metrics: each is declared once, by name, type, unit, labels and meaning.

What every system has stands here; `METRICS` of `serving/<system>/metric_list.py` is all that a system has. Services register
what is declared (`register`), docs/metrics.md and the dashboards are written from it, and alerts name nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from pliant import systems

Kind = Literal["counter", "gauge", "histogram"]
Across = Literal["sum", "max", "avg"]

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
LONG = (*SECONDS, 20.0, 50.0, 100.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric. `name` is that of its samples: counters end in _total, histograms have _bucket, _sum and _count besides.

    `unit`: what is counted or measured; a ratio is from 0 to 1. `part`: the heading below which it is shown. `across`: how
    the values of several instances are put together, and `processes` those of several processes (Prometheus' word).
    `after`: what has to happen before it has a sample, if more than requests; `is_event`: this may never happen, so no
    sample means zero. `grows`: a gauge that only grows, until its process ends. `by`: the labels that a picture keeps apart;
    None: all. `buckets`: of a histogram.
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
    processes: str = "livesum"
    buckets: Sequence[float] = ()


def counter(
    name: str, part: str, unit: str, meaning: str, *labels: str, event: str = "", by: tuple[str, ...] | None = None
) -> Metric:
    """Return a counter. `event`: what has to happen before it has a sample, and may never happen."""
    is_event = bool(event)
    return Metric(f"pliant_{name}_total", "counter", unit, part, meaning, labels, after=event, is_event=is_event, by=by)


def gauge(name: str, part: str, unit: str, meaning: str, *labels: str, **more: Any) -> Metric:
    """Return a gauge. `more`: further fields of `Metric`."""
    return Metric(f"pliant_{name}", "gauge", unit, part, meaning, labels, **more)


def histogram(
    name: str, part: str, unit: str, meaning: str, *labels: str, buckets: Sequence[float] = SECONDS, after: str = ""
) -> Metric:
    return Metric(f"pliant_{name}", "histogram", unit, part, meaning, labels, after=after, buckets=buckets)


def register(metrics: Iterable[Metric], registry: CollectorRegistry = REGISTRY) -> dict[str, Any]:
    """Register metrics, and return what counts them, by name without `pliant_` and `_total`."""
    collectors: dict[str, Any] = {}
    for metric in metrics:
        name, text, labels = metric.name, text_of(metric), metric.labels
        match metric.kind:
            case "counter":
                collector: Any = Counter(name, text, labels, registry=registry)
            case "gauge":
                mode: Any = metric.processes
                collector = Gauge(name, text, labels, registry=registry, multiprocess_mode=mode)
            case "histogram":
                collector = Histogram(name, text, labels, registry=registry, buckets=metric.buckets)
        collectors[short(name)] = collector
    return collectors


def short(name: str) -> str:
    """Return a metric's name without what all have."""
    return name.removeprefix("pliant_").removesuffix("_total")


RATIO, SWITCH = "ratio", "0 or 1"
REQUESTS, DEVICES, POLLS = "Requests", "Devices", "Registry"
DOOR, DISK = "Encryption", "Disk"
TENANTS, CHANGE, LABELS = "Tenants", "Changes in traffic", "Labels and promises"
_NAMED = "a request whose key names a tenant"
_LOOK = "the first look of the watch at answers"

SERVICE = (
    counter("refusals", REQUESTS, "requests", "answered with an error, by its code", "code", event="an error"),
    counter("worker_failures", DEVICES, "processes", "of devices or engines that died or hung"),
    Metric(
        "pliant_refreshes_total",
        "counter",
        "polls",
        POLLS,
        "of the registry, by outcome: `unchanged`, `changed`, `held` (what was published cannot be served), `failed`",
        ("outcome",),
        after="a poll",
    ),
)
STATE = (
    gauge("ready", DEVICES, SWITCH, "1 if the service is ready as /readyz says", processes="livemin"),
    counter(
        "events",
        CHANGE,
        "events",
        "by name: `pliant.alarm`, `pliant.promise-broken`, `pliant.champion` (promoted here), `pliant.rollback` (a "
        "trial was taken back here)",
        "event",
        event="an event",
    ),
    gauge("devices", DEVICES, "devices", "that are up"),
    gauge(
        "loop_seconds",
        REQUESTS,
        "seconds",
        "of the processor that the event loop has had, which reads and writes one request at a time: 1 a second is all",
        grows=True,
    ),
    gauge(
        "events_waiting",
        CHANGE,
        "events",
        "that Prefect's server has not taken yet, beyond 1,000 the oldest are given up",
    ),
    gauge(
        "write_failing",
        DISK,
        SWITCH,
        "1 while files cannot be written, as on a full disk: `journal` (not that of packing), `observed`, `outcomes` "
        "(labels, too), `inputs`, `watch`, `trials`, `events`",
        "what",
        across="max",
        is_event=True,
        processes="livemax",
    ),
)
CERTIFICATE = (
    gauge(
        "tls_certificate_expiry_timestamp_seconds",
        DOOR,
        "seconds",
        "since 1970 at which the service's own certificate expires; `source` is always `service`",
        "source",
        across="max",
        after="a start with a certificate",
        processes="livemin",
    ),
)
ACCESS = (
    counter(
        "tenant_arrivals", TENANTS, "requests", "of HTTP with a valid key; without keys the tenant is empty", "tenant"
    ),
    counter("tenant_answers", TENANTS, "requests", "of HTTP that were answered, by status", "tenant", "status"),
    counter(
        "tenant_refusals",
        TENANTS,
        "requests",
        "beyond the tenant's own limits, by the error's code",
        *("tenant", "code"),
        event="a tenant beyond its limits",
    ),
    gauge("tenant_waiting", TENANTS, "requests", "of HTTP without an answer now", "tenant"),
)
TENANT_USE = (
    counter(
        "tenant_seconds",
        TENANTS,
        "seconds",
        "of devices, for the first 256 tenants by name and for all further ones as `others`",
        "tenant",
        event=_NAMED,
    ),
    counter(
        "tenant_outcomes",
        TENANTS,
        "requests",
        "answered or dropped: `answered`, `dropped_late`, `dropped_full`, `dropped_failed` (packing: outputs)",
        *("tenant", "outcome"),
        event=_NAMED,
    ),
)
DRIFT = (
    gauge(
        "drift",
        CHANGE,
        SWITCH,
        "1 if a stream has changed since the release was taken up",
        "stream",
        across="max",
        after=_LOOK,
        processes="livemax",
    ),
    gauge(
        "drift_evidence",
        CHANGE,
        RATIO,
        "evidence that a stream has changed, as a share of what raises an alarm, on a logarithmic scale",
        "stream",
        across="max",
        after=_LOOK,
        processes="livemax",
    ),
    counter("drift_alarms", CHANGE, "alarms", "over changed streams", "stream", event="an alarm"),
    gauge(
        "estimated_accuracy",
        CHANGE,
        RATIO,
        "accuracy of the latest answers, estimated without labels from calibrated confidences",
        "stream",
        across="avg",
        after="answers of a classifier that the watch has looked at",
        processes="livemax",
    ),
)
WORTH = (
    counter("utility_offered", REQUESTS, "utility", "of the requests that were answered or dropped"),
    counter("utility_earned", REQUESTS, "utility", "of those answered in time, right or wrong"),
)
COMMON = (*SERVICE, *STATE, *CERTIFICATE, *ACCESS, *TENANT_USE, *DRIFT)
"""What the service of every system has."""


def driven(setting: str, origins: Sequence[str]) -> tuple[Metric, ...]:
    """Return what a system has whose requests go through serving/driver.py; the arguments are those of `Metrics`."""
    return (
        counter("arrivals", REQUESTS, "requests", "that reached the scheduler", "task"),
        counter(
            "outcomes",
            REQUESTS,
            "requests",
            "by what became of them: `on_time`, `late`, `dropped_late`, `dropped_full`, `dropped_failed`",
            *("task", "outcome"),
        ),
        counter(
            "answers",
            REQUESTS,
            "requests",
            "answered, by the versions and settings that gave the answer",
            *("task", *origins),
            by=("task", *origins[:1]),
        ),
        *WORTH,
        counter("cancelled", REQUESTS, "requests", "whose client left before the answer"),
        gauge("waiting", REQUESTS, "requests", "that no device has in hand"),
        histogram(
            *("request_seconds", REQUESTS, "seconds", "from the socket to the answer's being written, as forecast"),
            buckets=LONG,
        ),
        histogram("queue_seconds", REQUESTS, "seconds", "from arrival to launch, per answered request"),
        histogram("run_seconds", DEVICES, "seconds", "on the device, per launch"),
        histogram("batch_size", DEVICES, "requests", "per launch", buckets=SIZES),
        counter("launches", DEVICES, "launches", f"by {setting}", setting),
        counter(
            "model_errors",
            DEVICES,
            "launches",
            "in which the model raised an error; the process goes on, and a bad request fails alone",
        ),
        counter(
            "fallbacks",
            DEVICES,
            "fallbacks",
            "to a slower way since a better one failed: `capture` (of a CUDA graph), `package`, `memory`, `precision`",
            "kind",
            event="a fallback",
        ),
        counter(
            "scheduler_restarts",
            DEVICES,
            "errors",
            "of the scheduler, after which a fresh one went on with what was pending",
        ),
    )


def labelled(candidate: str, *level: str) -> tuple[Metric, ...]:
    """Return what a system has that takes labels; the arguments are those of `Names` (serving/loop/outcomes.py)."""
    by_level, shown = (candidate, *level), {"across": "max", "after": "a label", "processes": "livemax"}
    return (
        counter(
            "labels",
            LABELS,
            "labels",
            "reported, by whether the answer was correct",
            *("task", *by_level, "correct"),
            event="a label",
            by=("task", "correct"),
        ),
        gauge(
            "calibration_error",
            LABELS,
            RATIO,
            "expected calibration error of labelled answers, in 15 bins",
            *("task", "version", *by_level),
            **shown,
        ),
        gauge(
            "promise_broken",
            LABELS,
            SWITCH,
            "1 if the accuracy is below the promised one, or a slice's below its floor",
            *("task", "version", candidate),
            **shown,
        ),
        counter(
            "alarms",
            LABELS,
            "alarms",
            "over broken promises, by event: `raised`, `taken_back`",
            *("task", "event"),
            event="an alarm",
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
