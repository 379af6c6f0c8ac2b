"""Where things lie: the project, and the recorded data beside it, which may be missing."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "data"
