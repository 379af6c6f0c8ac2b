"""Prometheus metrics of who may call a service, the same for all systems. The tenant is empty where there are no keys."""

from __future__ import annotations

from functools import cache

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge


class TenantMetrics:
    """Counts the requests of each tenant. What is written for a tenant is looked up once: a request writes four times."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        text = "Requests with a valid key"
        self._arrivals = cache(Counter("pliant_tenant_arrivals", text, ("tenant",), registry=registry).labels)
        text = "Requests answered, by HTTP status"
        self._answers = cache(Counter("pliant_tenant_answers", text, ("tenant", "status"), registry=registry).labels)
        text = "Requests refused by a tenant's own limits"
        self._refusals = cache(Counter("pliant_tenant_refusals", text, ("tenant", "code"), registry=registry).labels)
        text = "Requests that wait for their answer"
        waiting = Gauge("pliant_tenant_waiting", text, ("tenant",), registry=registry, multiprocess_mode="livesum")
        self._waiting = cache(waiting.labels)

    def arrived(self, tenant: str) -> None:
        self._arrivals(tenant).inc()

    def answered(self, tenant: str, status: int) -> None:
        self._answers(tenant, str(status)).inc()

    def refused(self, tenant: str, code: str) -> None:
        self._refusals(tenant, code).inc()

    def waiting(self, tenant: str, count: int) -> None:
        self._waiting(tenant).set(count)


class CertificateMetrics:
    """Shows when the certificate of a service of its own expires. Without one there is no sample."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        name, text = "pliant_tls_certificate_expiry_timestamp_seconds", "When the service's certificate expires"
        self._end = Gauge(name, text, ("source",), registry=registry, multiprocess_mode="livemin")

    def expires(self, end: float) -> None:
        """Show an end, in seconds since 1970."""
        self._end.labels("service").set(end)
