"""The metrics of the packing service, as docs/metrics.md shows them. What it calls a task is a model."""

from __future__ import annotations

from pliant.serving.monitoring.metric_list import (
    ACCESS,
    CERTIFICATE,
    COMMON,
    DEVICES,
    DRIFT,
    LONG,
    RATIO,
    REQUESTS,
    STATE,
    TENANT_USE,
    WORTH,
    counter,
    gauge,
    histogram,
)

TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
MEMORY, LENGTHS = "Engine and memory", "Forecasts of lengths"
_FORECAST = "an answer whose prompt had a forecast"
_LACK = "a lack of memory"

NOT_DRAWN = ("pliant_estimated_accuracy", "pliant_lowered_sequences")
"""Not on the dashboard: packing has no classifiers, and the other has a value only once memory was lacking."""

MEASURED = (
    histogram(
        *("request_seconds", REQUESTS, "seconds", "from the socket to the last token, per answer", "task"), buckets=LONG
    ),
    histogram("queue_seconds", REQUESTS, "seconds", "to the first iteration, per answer", "task"),
    histogram("ttft_seconds", REQUESTS, "seconds", "to the first token, per answer", "task"),
    histogram(
        "tpot_seconds",
        REQUESTS,
        "seconds",
        "a token behind the first, per answer",
        "task",
        after="an answer of several tokens",
    ),
    histogram(
        "predicted_tokens",
        LENGTHS,
        "tokens",
        "median of the forecast, per answer",
        "task",
        buckets=TOKENS,
        after=_FORECAST,
    ),
    histogram("observed_tokens", LENGTHS, "tokens", "of an answer", "task", buckets=TOKENS, after="an answer"),
)
"""Of each answer: see `Observation.measured`."""
ENGINE = (
    gauge("waiting", REQUESTS, "outputs", "that are not in the engine's batch", "task"),
    gauge("running", MEMORY, "outputs", "in the engine's batch", "task"),
    gauge("pages", MEMORY, "pages", "that the device has for keys and values", "task"),
    gauge("pages_used", MEMORY, "pages", "of these in use", "task"),
    gauge("host_pages_used", MEMORY, "pages", "in the host's memory", "task"),
    gauge("engine_iterations", MEMORY, "iterations", "since the engine's start", "task", grows=True),
    gauge("engine_busy_seconds", DEVICES, "seconds", "in iterations since the engine's start", "task", grows=True),
    gauge("engine_tokens", MEMORY, "tokens", "generated since the engine's start", "task", grows=True),
    gauge("engine_preemptions", MEMORY, "preemptions", "since the engine's start", "task", grows=True),
    gauge("engine_recomputed", MEMORY, "tokens", "computed again, since the engine's start", "task", grows=True),
    gauge(
        "engine_shared",
        MEMORY,
        "tokens",
        "of prompts not read, as others that begin alike had been, since the engine's start",
        "task",
        grows=True,
    ),
)
"""Of an engine's status: fields of `Status`, those that grow behind `engine_`."""
METRICS = (
    counter("arrivals", REQUESTS, "outputs", "that were requested", "task"),
    counter(
        "outcomes",
        REQUESTS,
        "outputs",
        "by how they ended: `stop`, `length`, `cancelled`, `failed`, `dropped_late`, `dropped_full`",
        *("task", "outcome"),
    ),
    *WORTH,
    counter("answers", REQUESTS, "outputs", "by generator version", "task", "generator_version"),
    counter(
        "targets",
        REQUESTS,
        "outputs",
        "with a deadline or targets, by whether they were kept: `true`, `false`",
        *("task", "kept"),
        event="an answer to a request with a deadline or targets",
    ),
    *COMMON,
    counter(
        "out_of_memory", DEVICES, "processes", "of engines that ran out of the device's memory", "task", event=_LACK
    ),
    counter(
        "predictor_failures",
        DEVICES,
        "processes",
        "of predictors that died or hung",
        "task",
        event="a predictor that died",
    ),
    *ENGINE,
    gauge(
        "lowered_sequences",
        MEMORY,
        "sequences",
        "of an iteration at most, since the last lack of memory",
        "task",
        after=_LACK,
    ),
    counter(
        "predictions",
        LENGTHS,
        "forecasts",
        "by origin: `predicted`, `late` or `failed` (these two take the lengths of all texts together)",
        *("task", "origin"),
    ),
    histogram("forecast_seconds", LENGTHS, "seconds", "that a prompt waited for its forecast", "task"),
    *MEASURED,
    gauge(
        "coverage",
        LENGTHS,
        RATIO,
        "share of recent answers no longer than the forecast's quantile, which is the label `level`",
        *("task", "level"),
        across="avg",
        after=_FORECAST,
    ),
)
OWN = tuple(metric for metric in METRICS if metric not in (*STATE, *CERTIFICATE, *ACCESS, *TENANT_USE, *DRIFT))
"""What `PackingMetrics` counts."""
