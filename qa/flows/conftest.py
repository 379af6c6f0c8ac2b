"""Prefect's server, one for all flows that are run here."""

from __future__ import annotations

from tests.flows.conftest import prefect

__all__ = ["prefect"]
