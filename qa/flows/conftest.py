"""Prefect's server, one for all flows that are run here, and places in which a system's flow is run."""

from __future__ import annotations

from tests.flows.conftest import place, prefect, run, world

__all__ = ["place", "prefect", "run", "world"]
