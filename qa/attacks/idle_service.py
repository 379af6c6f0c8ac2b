"""The packing service, but its engine computes nothing (idle_engine.py), so that its front door is full."""

from __future__ import annotations

from pliant.serving.packing.assembly import Maker
from pliant.serving.packing.service import PackingService
from qa.attacks.idle_engine import IdleBuild

__all__ = ["PackingService"]

_real = Maker._build
Maker._build = lambda *args: IdleBuild(_real(*args))  # type: ignore[assignment,method-assign]
