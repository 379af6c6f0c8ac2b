"""Pliant's decisions in vLLM. `PliantScheduler` is loaded when it is first named, since it needs vLLM itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

FOLDER = "vllm-models"


def folder_of(home: Path, digest: str) -> Path:
    """Return the folder of the generator with this digest."""
    return home / FOLDER / digest.rsplit(":", 1)[-1][:24]


def __getattr__(name: str) -> Any:
    if name == "PliantScheduler":
        from pliant.packing.vllm.adapter import PliantScheduler

        return PliantScheduler
    raise AttributeError(name)
