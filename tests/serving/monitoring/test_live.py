"""A real service writes its whole log as JSON, and shows at /metrics what the list says."""

from __future__ import annotations

import json
import signal
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pliant.serving.monitoring.metric_list import metrics_of, samples_of
from tests.fixtures.cascade.published import SURE, UNSURE, MlflowPublisher, publish_tiny, settings_for
from tests.fixtures.clients import PATIENCE, call, wait_for
from tests.fixtures.live import processes, running

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("registry")
    publish_tiny(MlflowPublisher(folder))
    return folder


@pytest.fixture(scope="module")
def shown(folder):
    """The samples at /metrics after a request and the death of a device process; then the service has ended."""
    samples = []
    settings = settings_for(folder, log_format="json", refresh_seconds=0.5, watch_seconds=0.5)
    with running(settings, folder) as service:
        body = {"task": "colours", "texts": [SURE, UNSURE], "deadline": 30.0}
        assert call(service, "POST", "/v1/predict", json.dumps(body).encode())[0] == 200
        processes(service)[0].send_signal(signal.SIGKILL)

        def sampled():
            with urllib.request.urlopen(f"{service.url}/metrics", timeout=PATIENCE) as response:
                families = text_string_to_metric_families(response.read().decode())
                samples[:] = [sample for family in families for sample in family.samples]
            names = {sample.name for sample in samples}
            failures = sum(sample.value for sample in samples if sample.name == "pliant_worker_failures_total")
            return failures and {"pliant_drift", "pliant_refreshes_total"} <= names

        wait_for(sampled)
    return samples


def test_what_is_shown_is_in_the_list_and_all_that_needs_requests_alone_is_shown(shown):
    names = {sample.name for sample in shown if not sample.name.startswith("bentoml_")}
    metrics = metrics_of("cascade")
    assert names <= {name for metric in metrics for name in samples_of(metric)}
    assert {name for metric in metrics if not metric.after for name in samples_of(metric)} <= names
    labels = {metric.name: set(metric.labels) for metric in metrics if metric.kind != "histogram"}
    assert all(set(sample.labels) == labels[sample.name] for sample in shown if sample.name in labels)


def test_every_line_of_the_log_is_an_object(shown, folder):
    lines = [line for line in (folder / "serve.log").read_text(encoding="utf-8").splitlines() if line]
    entries = [json.loads(line) for line in lines]
    assert all({"time", "level", "logger", "message", "process"} <= set(entry) for entry in entries)
    assert len({entry["process"] for entry in entries}) >= 2  # BentoML's supervisor and the service
    assert any(entry["logger"] == "pliant.serving" and "runs on" in entry["message"] for entry in entries)
