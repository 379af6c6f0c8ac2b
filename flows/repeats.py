"""What a flow says of inputs that repeat: a line of its output, and the notes of a stage, which its run in MLflow keeps."""

from __future__ import annotations

import sys

from flows.keys import StageResult
from training.groups import Repeats


def tell(name: str, repeats: Repeats | None) -> None:
    """Say how many rows of a data set repeat, if any does."""
    if repeats is not None and repeats.rows > repeats.inputs:
        print(f"{name}: {repeats}.", file=sys.stderr)  # noqa: T201


def noted(result: StageResult, repeats: Repeats | None) -> StageResult:
    """Return a stage's result with what repeats in its data among its notes."""
    return {**result, "notes": {**result.get("notes", {}), "repeats": str(repeats)}} if repeats else result
