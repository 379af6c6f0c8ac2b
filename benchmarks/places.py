"""Where things lie: the project, and the recorded data beside it, which may be missing."""

from pathlib import Path

from pliant.errors import InputError

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "data"
ALPACA = SHARED / "text" / "alpaca_train.parquet"


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
