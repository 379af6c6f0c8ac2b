"""Prometheus metrics by tenant, the same for all systems. The tenant is empty where there are no keys."""

from __future__ import annotations

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge


class TenantMetrics:
    """Counts the requests of each tenant."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._arrivals = Counter("pliant_tenant_arrivals", "Requests with a valid key", ("tenant",), registry=registry)
        text = "Requests answered, by HTTP status"
        self._answers = Counter("pliant_tenant_answers", text, ("tenant", "status"), registry=registry)
        text = "Requests refused by a tenant's own limits"
        self._refusals = Counter("pliant_tenant_refusals", text, ("tenant", "code"), registry=registry)
        text = "Requests that wait for their answer"
        self._waiting = Gauge(
            "pliant_tenant_waiting", text, ("tenant",), registry=registry, multiprocess_mode="livesum"
        )

    def arrived(self, tenant: str) -> None:
        self._arrivals.labels(tenant).inc()

    def answered(self, tenant: str, status: int) -> None:
        self._answers.labels(tenant, str(status)).inc()

    def refused(self, tenant: str, code: str) -> None:
        self._refusals.labels(tenant, code).inc()

    def waiting(self, tenant: str, count: int) -> None:
        self._waiting.labels(tenant).set(count)
