"""The packing service, but its engine computes nothing: `bentoml serve benchmarks.packing.door_service:PackingService`."""

from __future__ import annotations

from benchmarks.packing.idle_engine import IdleBuild
from serving.packing.assembly import Maker
from serving.packing.service import PackingService

__all__ = ["PackingService"]

_real = Maker._build
Maker._build = lambda *args: IdleBuild(_real(*args))  # type: ignore[assignment,method-assign]
