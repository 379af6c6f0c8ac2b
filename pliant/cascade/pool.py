"""Joins the outputs on a data set's texts with those on later, labelled traffic, so that the old do not drown the new.

A promise is about the texts that come. So as soon as `rows` texts of the traffic are there, it is planned and judged with
them alone; until then, texts of the data set make up what is lacking. From `rows` / 2 on, the traffic is half or more.

Shape suffixes: R texts.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np

from pliant.cascade.artifact import LevelOutputs, Outputs, PrunedOutputs
from pliant.cascade.evaluate import shuffled, subset
from pliant.errors import ArtifactError


def pooled(old: Outputs, new: Outputs, rows: int, seed: int = 0, data: str = "") -> Outputs:
    """Return the outputs on the texts of `new`, filled up to `rows` with texts of `old` drawn by `seed`.

    Equal counts and seeds draw equal rows, whatever the levels are. `data`: fingerprint of the result. Raises
    `ArtifactError` for outputs of other levels, classes, prunings or precision.
    """
    _check(old, new)
    lacking = min(len(old.labels), max(0, rows - len(new.labels)))
    kept = subset(old, np.sort(shuffled(len(old.labels), seed)[:lacking]))
    levels = tuple(
        LevelOutputs(np.concatenate([a.logits, b.logits]), np.concatenate([a.length, b.length]))
        for a, b in zip(kept.levels, new.levels, strict=True)
    )
    pruned = tuple(_joined(a, b) for a, b in zip(kept.pruned, new.pruned, strict=True))
    labels_R = np.concatenate([kept.labels, new.labels])
    return replace(old, labels=labels_R, levels=levels, pruned=pruned, data=data)


def mark(old: str, new: str, rows: int, seed: int) -> str:
    """Return the fingerprint of both data sets, pooled: of all splits, `rows` is that of the profiling split."""
    return f"sha256:{hashlib.sha256(f'{old} {new} {rows} {seed}'.encode()).hexdigest()}"


def _joined(old: PrunedOutputs, new: PrunedOutputs) -> PrunedOutputs:
    logits, length, kept = (
        np.concatenate([getattr(old, name), getattr(new, name)]) for name in ("logits", "length", "kept")
    )
    return replace(old, logits=logits, length=length, kept=kept)


def _check(old: Outputs, new: Outputs) -> None:
    for name in ("names", "classifiers", "classes", "precision"):
        if getattr(old, name) != getattr(new, name):
            raise ArtifactError(f"outputs of {old.task} on old and new texts differ in their {name}")
    if [(run.pruner, run.reader, run.pruning) for run in old.pruned] != [
        (run.pruner, run.reader, run.pruning) for run in new.pruned
    ]:
        raise ArtifactError(f"outputs of {old.task} on old and new texts differ in their prunings")
