"""Who sends a request: what the key of a request says. Knows no HTTP, so that drivers and schedulers can use it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Client:
    """A tenant, and what the key that was sent allows. Without keys everybody is the same client, and an administrator.

    `weight` is the tenant's share of the devices relative to the other tenants'. `roles`: "use" (requests), "admin"
    (refresh, registration, alarms, labels of questions), "monitor" (status and metrics) - an administrator has them all.
    """

    tenant: str = ""
    weight: float = 1.0
    roles: frozenset[str] = frozenset({"use", "admin", "monitor"})
    key: str = ""  # name of the key; empty without keys
    capped: bool = False  # whether the tenant is one of several that may only use the service: see pliant/fairness.py


ANYBODY = Client()
