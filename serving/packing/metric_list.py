"""The metrics of the packing service, as docs/metrics.md shows them. What it calls a task is a model."""

from __future__ import annotations

from pliant.serving.monitoring.metric_list import COMMON, DEVICES, RATIO, REQUESTS, Metric

MEMORY, LENGTHS = "Engine and memory", "Forecasts of lengths"
_TASK = ("task",)
_ANSWERED = "an answer whose prompt had a forecast"

NOT_DRAWN = ("pliant_estimated_accuracy", "pliant_lowered_sequences")
"""Not on the dashboard: packing has no classifiers, and the other has a value only once memory was lacking."""

METRICS = (
    Metric("pliant_arrivals_total", "counter", "outputs", REQUESTS, "that were requested", _TASK),
    Metric(
        "pliant_outcomes_total",
        "counter",
        "outputs",
        REQUESTS,
        "by how they ended: `stop`, `length`, `cancelled`, `failed`, `dropped_late`, `dropped_full`",
        ("task", "outcome"),
    ),
    Metric(
        "pliant_answers_total", "counter", "outputs", REQUESTS, "by generator version", ("task", "generator_version")
    ),
    Metric(
        "pliant_targets_total",
        "counter",
        "outputs",
        REQUESTS,
        "with a deadline or targets, by whether they were kept: `true`, `false`",
        ("task", "kept"),
        after="an answer to a request with a deadline or targets",
        is_event=True,
    ),
    Metric("pliant_waiting", "gauge", "outputs", REQUESTS, "that are not in the engine's batch", _TASK),
    Metric("pliant_queue_seconds", "histogram", "seconds", REQUESTS, "to the first iteration, per answer", _TASK),
    Metric("pliant_ttft_seconds", "histogram", "seconds", REQUESTS, "to the first token, per answer", _TASK),
    Metric(
        "pliant_tpot_seconds",
        "histogram",
        "seconds",
        REQUESTS,
        "a token behind the first, per answer",
        _TASK,
        after="an answer of several tokens",
    ),
    *COMMON,
    Metric(
        "pliant_out_of_memory_total",
        "counter",
        "processes",
        DEVICES,
        "of engines that ran out of the device's memory",
        _TASK,
        after="a lack of memory",
        is_event=True,
    ),
    Metric(
        "pliant_predictor_failures_total",
        "counter",
        "processes",
        DEVICES,
        "of predictors that died or hung",
        _TASK,
        after="a predictor that died",
        is_event=True,
    ),
    Metric("pliant_running", "gauge", "outputs", MEMORY, "in the engine's batch", _TASK),
    Metric("pliant_pages", "gauge", "pages", MEMORY, "that the device has for keys and values", _TASK),
    Metric("pliant_pages_used", "gauge", "pages", MEMORY, "of these in use", _TASK),
    Metric("pliant_host_pages_used", "gauge", "pages", MEMORY, "in the host's memory", _TASK),
    Metric(
        "pliant_lowered_sequences",
        "gauge",
        "sequences",
        MEMORY,
        "of an iteration at most, since the last lack of memory",
        _TASK,
        after="a lack of memory",
    ),
    Metric("pliant_engine_iterations", "gauge", "iterations", MEMORY, "since the engine's start", _TASK, grows=True),
    Metric("pliant_engine_tokens", "gauge", "tokens", MEMORY, "generated since the engine's start", _TASK, grows=True),
    Metric("pliant_engine_preemptions", "gauge", "preemptions", MEMORY, "since the engine's start", _TASK, grows=True),
    Metric(
        "pliant_engine_recomputed",
        "gauge",
        "tokens",
        MEMORY,
        "computed again, since the engine's start",
        _TASK,
        grows=True,
    ),
    Metric(
        "pliant_engine_shared",
        "gauge",
        "tokens",
        MEMORY,
        "of prompts not read, as others that begin alike had been, since the engine's start",
        _TASK,
        grows=True,
    ),
    Metric(
        "pliant_predictions_total",
        "counter",
        "forecasts",
        LENGTHS,
        "by origin: `predicted`, `late` or `failed` (these two take the lengths of all texts together)",
        ("task", "origin"),
    ),
    Metric("pliant_forecast_seconds", "histogram", "seconds", LENGTHS, "that a prompt waited for its forecast", _TASK),
    Metric(
        "pliant_predicted_tokens",
        "histogram",
        "tokens",
        LENGTHS,
        "median of the forecast, per answer",
        _TASK,
        after=_ANSWERED,
    ),
    Metric("pliant_observed_tokens", "histogram", "tokens", LENGTHS, "of an answer", _TASK, after="an answer"),
    Metric(
        "pliant_coverage",
        "gauge",
        RATIO,
        LENGTHS,
        "share of recent answers no longer than the forecast's quantile, which is the label `level`",
        ("task", "level"),
        across="avg",
        after=_ANSWERED,
    ),
)
