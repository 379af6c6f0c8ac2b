"""Where a generator lies that vLLM is to load, beside Pliant's other state."""

from __future__ import annotations

from pathlib import Path

FOLDER = "vllm-models"


def folder_of(home: Path, digest: str) -> Path:
    """Return the folder of the generator with this digest."""
    return home / FOLDER / digest.rsplit(":", 1)[-1][:24]
