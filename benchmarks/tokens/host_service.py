"""The tokens service, but its device computes nothing: `bentoml serve benchmarks.tokens.host_service:TokensService`."""

from __future__ import annotations

from benchmarks.tokens.idle_device import IdleBuild
from serving.tokens import assembly
from serving.tokens.service import TokensService

__all__ = ["TokensService"]

_real = assembly.build_plan
assembly.build_plan = lambda *args: IdleBuild(_real(*args))  # type: ignore[arg-type]
