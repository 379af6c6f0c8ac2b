"""Prefect's server, one for all flows that are run here, places in which a system's flow is run, and a registry."""

from __future__ import annotations

from tests.flows.conftest import place, prefect, run, world
from tests.registry.conftest import registry, shelf

__all__ = ["place", "prefect", "registry", "run", "shelf", "world"]
