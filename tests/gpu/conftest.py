"""The `device` of these tests: cpu, and cuda where there is one."""

from __future__ import annotations

from tests.fixtures.gpu.device import device

__all__ = ["device"]
