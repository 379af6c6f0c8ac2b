"""The list of metrics is what the services register, no more and no less, and its names are as Prometheus wants them."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from pliant import systems
from pliant.serving.http.access.access import TenantMetrics, show_certificate
from pliant.serving.monitoring.metric_list import all_metrics, metrics_of
from pliant.serving.tokens import assembly as tokens
from tests.fixtures.bins import in_process as bins
from tests.fixtures.bins.published import publish_tiny as publish_bins
from tests.fixtures.cascade import in_process as cascade
from tests.fixtures.cascade.published import publish_tiny as publish_cascade
from tests.fixtures.certificate import certificate
from tests.fixtures.fakes import FakeWorker
from tests.fixtures.packing import in_process as packing
from tests.fixtures.registry import FolderRegistry
from tests.fixtures.tokens.http import SETTINGS as TOKENS


async def of_tokens(registry, folder) -> CollectorRegistry:
    counted, settings = CollectorRegistry(), TOKENS.replace(any_profile=True, refresh_seconds=0.0, home=folder)
    assembled = await tokens.TokensSystem(settings).assemble(registry, lambda build: FakeWorker(), counted)
    await assembled.stop()
    return counted


async def of_cascade(folder) -> CollectorRegistry:
    published = FolderRegistry(folder)
    publish_cascade(published)
    async with cascade.serving(published) as service:
        return service.counted


def registered(system, registry, folder) -> CollectorRegistry:
    """Return what the system's service registers when it is assembled, and its gate when it is hosted."""
    if system == "tokens":
        counted = asyncio.run(of_tokens(registry, folder))
    elif system == "cascade":
        counted = asyncio.run(of_cascade(folder))
    else:
        publish, serving = {"bins": (publish_bins, bins.serving), "packing": (packing.publish, packing.serving)}[system]
        publish(published := FolderRegistry(folder))
        with serving(published) as service:
            counted = service.counted
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


@pytest.mark.parametrize("system", systems.names())
def test_names_are_unique_and_as_prometheus_wants_them_and_of_one_type_everywhere(system):
    metrics = metrics_of(system)
    assert len({metric.name for metric in metrics}) == len(metrics)
    others = {metric.name: metric for metrics in all_metrics().values() for metric in metrics}
    for metric in metrics:
        assert metric.name.startswith("pliant_") and metric.name.islower()
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert ("_seconds" in metric.name) == (metric.unit == "seconds")
        assert not metric.name.endswith(("_bucket", "_sum", "_count", "_info"))
        assert not {"le", "system"} & set(metric.labels), "one is Prometheus', the other the scraper's"
        assert metric.by is None or set(metric.by) <= set(metric.labels)
        other = others[metric.name]
        assert (metric.kind, metric.unit == "seconds") == (other.kind, other.unit == "seconds")
