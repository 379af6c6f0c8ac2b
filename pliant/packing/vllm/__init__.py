"""Pliant's decisions in vLLM. `PliantScheduler` is loaded when it is first named, since it needs vLLM itself."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "PliantScheduler":
        from pliant.packing.vllm.adapter import PliantScheduler

        return PliantScheduler
    raise AttributeError(name)
