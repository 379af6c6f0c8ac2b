"""The list of metrics is what the services register, no more and no less, and its names are as Prometheus wants them."""

from __future__ import annotations

import ast
import asyncio
from dataclasses import replace

import prometheus_client
import pytest
from prometheus_client import CollectorRegistry

from pliant import systems
from pliant.errors import InputError
from pliant.serving.http.access.access import TenantMetrics
from pliant.serving.http.access.settings import show_certificate
from pliant.serving.monitoring.metric_list import all_metrics, metrics_of, samples_of
from pliant.serving.tokens import assembly as tokens
from tests.fixtures.bins import in_process as bins
from tests.fixtures.bins.published import publish_tiny as publish_bins
from tests.fixtures.cascade import in_process as cascade
from tests.fixtures.cascade.published import publish_tiny as publish_cascade
from tests.fixtures.certificate import certificate
from tests.fixtures.fakes import FakeWorker
from tests.fixtures.packing import in_process as packing
from tests.fixtures.places import ROOT
from tests.fixtures.registry import FolderRegistry
from tests.fixtures.tokens.http import SETTINGS as TOKENS

REGISTERING = {
    "serving/cascade/agreement.py",
    "serving/http/access/access.py",
    "serving/http/access/settings.py",
    "serving/metrics.py",
    "serving/monitoring/state_metrics.py",
    "serving/outcomes/outcomes.py",
    "serving/packing/engine/metrics.py",
    "serving/tokens/registration.py",
    "serving/watch/watcher.py",
}
"""Files that register metrics, all of which a service of `registered` runs."""


async def of_tokens(registry, folder) -> CollectorRegistry:
    counted, settings = CollectorRegistry(), replace(TOKENS, any_profile=True, refresh_seconds=0.0, home=folder)
    assembled = await tokens.TokensSystem(settings).assemble(registry, lambda build: FakeWorker(), counted)
    await assembled.stop()
    return counted


async def of_cascade(folder) -> CollectorRegistry:
    published = FolderRegistry(folder)
    publish_cascade(published)
    async with cascade.serving(published) as service:
        return service.counted


def of_bins(folder) -> CollectorRegistry:
    published = FolderRegistry(folder)
    publish_bins(published, "colours")
    with bins.serving(published) as service:
        return service.counted


def of_packing(folder) -> CollectorRegistry:
    published = FolderRegistry(folder)
    packing.publish(published)
    with packing.serving(published) as service:
        return service.counted


def registered(system, registry, folder) -> CollectorRegistry:
    """Return what the system's service registers when it is assembled, and its gate when it is hosted."""
    match system:
        case "tokens":
            counted = asyncio.run(of_tokens(registry, folder))
        case "bins":
            counted = of_bins(folder)
        case "cascade":
            counted = asyncio.run(of_cascade(folder))
        case "packing":
            counted = of_packing(folder)
    TenantMetrics(counted)
    show_certificate(certificate(folder).path, counted)
    return counted


def described(collector) -> tuple[str, str, tuple[str, ...]]:
    suffix = "_total" if collector._type == "counter" else ""
    return collector._name + suffix, collector._type, tuple(collector._labelnames)


@pytest.mark.parametrize("system", systems.names())
def test_a_service_registers_what_the_list_says_and_nothing_else(system, registry, tmp_path):
    counted = registered(system, registry, tmp_path / "home")
    shown = {described(collector) for collector in counted._collector_to_names}
    assert shown == {(metric.name, metric.kind, metric.labels) for metric in metrics_of(system)}


def test_no_other_file_registers_metrics():
    kinds = {"Counter", "Gauge", "Histogram", "Summary", "Info", "Enum"}
    assert kinds <= set(dir(prometheus_client))
    files = set()
    for path in (ROOT / "serving").rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source if "prometheus_client" in source else "")):
            if isinstance(node, ast.ImportFrom) and node.module == "prometheus_client":
                files |= {path.relative_to(ROOT).as_posix()} if kinds & {alias.name for alias in node.names} else set()
    assert files == REGISTERING


@pytest.mark.parametrize("system", systems.names())
def test_names_are_unique_and_as_prometheus_wants_them(system):
    metrics = metrics_of(system)
    assert len({metric.name for metric in metrics}) == len(metrics)
    for metric in metrics:
        assert metric.name.startswith("pliant_") and metric.name.islower()
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert ("_seconds" in metric.name) == (metric.unit == "seconds")
        assert not metric.name.endswith(("_bucket", "_sum", "_count", "_info"))
        assert (
            "le" not in metric.labels and "system" not in metric.labels
        )  # the first is Prometheus', the second the scraper's
        assert metric.by is None or set(metric.by) <= set(metric.labels)


def test_a_metric_with_the_same_name_is_of_the_same_type_everywhere():
    kinds = {}
    for metrics in all_metrics().values():
        for metric in metrics:
            assert kinds.setdefault(metric.name, (metric.kind, metric.unit == "seconds")) == (
                metric.kind,
                metric.unit == "seconds",
            )


def test_a_histogram_has_three_kinds_of_samples_and_any_other_metric_has_its_own():
    metrics = {metric.name: metric for metric in metrics_of("tokens")}
    expected = tuple(f"pliant_queue_seconds_{part}" for part in ("bucket", "sum", "count"))
    assert samples_of(metrics["pliant_queue_seconds"]) == expected
    assert samples_of(metrics["pliant_waiting"]) == ("pliant_waiting",)


def test_an_unknown_system_has_no_list():
    with pytest.raises(InputError):
        metrics_of("no system")
