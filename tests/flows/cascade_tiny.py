"""A setting of the cascade flow that is done in seconds, and the texts for it: three classes that a few words tell apart.

Also outputs and cascades without any model, for the gate.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pliant.cascade.artifact import Candidate, Cascade, Gate, LevelOutputs, LevelProfile, Outputs
from pliant.cascade.evaluate import Ground, measured, tested
from pliant.latency import LatencyTable
from tests.cascade_things import DOUBT

WORDS = {"fruit": ("apple", "pear", "plum"), "metal": ("iron", "gold", "tin"), "tree": ("oak", "elm", "birch")}
FILL = ("the", "a", "of", "some", "old", "new", "large", "small", "one", "two", "and", "with")

TINY = {"width": 16, "layers": 1, "heads": 2, "vocabulary": 80, "positions": 40}
TRAINING = {"epochs": 2, "batch": 16, "max_length": 32, "head_rate": 5e-3}

SETTING: Mapping[str, Any] = {
    "levels": [
        {"name": "small", "scratch": TINY, "classifier": TRAINING},
        {"name": "large", "scratch": {**TINY, "width": 32, "layers": 2}, "classifier": TRAINING},
    ],
    "latency": {"batches": [1, 2], "timer": {"warmup": 0, "least": 1, "most": 1}},
    "reference": {"quiet": [0.5], "loud": [1.5], "seconds": 0.2},
    "gate": {"seeds": 1, "tolerance": 1.0, "confidence": 0.999999},  # so that whatever is made is promoted
}


def setting(folder: Path, **changes: Any) -> dict[str, Any]:
    """The tiny setting on the texts in `folder`, with some of its top-level keys replaced."""
    return {"tasks": [{"data": f"json:{folder / 'things.jsonl'}"}], **SETTING, **changes}


def write_texts(folder: Path, name: str = "things", count: int = 240, pair: bool = False, seed: int = 0) -> Path:
    """A file of labelled texts (or pairs: is one thing the kind of the other?)."""
    rng = np.random.default_rng(seed)
    kinds = sorted(WORDS)
    rows = []
    for _ in range(count):
        kind, other = rng.choice(kinds), rng.choice(kinds)
        if pair:
            label = "same" if kind == other else "other"
            rows.append({"text": _text(rng, kind), "text2": _text(rng, other), "label": label})
        else:
            rows.append({"text": _text(rng, kind), "label": str(kind)})
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _text(rng: np.random.Generator, kind: str) -> str:
    words = [*rng.choice(FILL, rng.integers(2, 14)), rng.choice(WORDS[kind])]
    return " ".join(rng.permutation(words))


def some_outputs(
    accuracy: tuple[float, ...] = (0.7, 0.95), count: int = 400, seed: int = 0, data: str = "d"
) -> Outputs:
    """Levels that are right as often as `accuracy` says, the surer the likelier; 4 to 40 tokens a text."""
    rng = np.random.default_rng(seed)
    label_R = rng.integers(3, size=count)
    length_R = rng.integers(4, 40, count).astype(np.int32)
    levels = []
    for share in accuracy:
        right_R = rng.random(count) < share
        said_R = np.where(right_R, label_R, (label_R + rng.integers(1, 3, count)) % 3)
        height_R = np.where(right_R, rng.normal(3, 1, count), rng.normal(1, 1, count))
        logits_RK = rng.normal(0, 0.3, (count, 3))
        logits_RK[np.arange(count), said_R] += np.abs(height_R)
        levels.append(LevelOutputs(logits_RK.astype(np.float32), length_R))
    names = tuple(f"level{number}" for number in range(len(accuracy)))
    digests = tuple(f"sha256:{name}" for name in names)
    return Outputs("things", ("a", "b", "c"), names, digests, label_R.astype(float), tuple(levels), (), data)


def table(factor: float) -> LatencyTable:
    """A launch takes 1 ms and each token a hundredth of one, times `factor`."""
    lengths, batches = (8, 16, 32, 64), (1, 2, 4, 8)
    rows = tuple(tuple(factor * (0.001 + 1e-5 * length * batch) for batch in batches) for length in lengths)
    return LatencyTable(lengths, batches, rows)


def some_cascade(test: Outputs, seconds: float = 1.0, device: str = "cpu", **changes: Any) -> Cascade:
    """Two levels of which the second costs ten times the first; goes on below a confidence of 0.8."""
    levels = tuple(
        LevelProfile(name, digest, 1.0, (), 0.8, 0.1, 0.05, table(seconds * 10**number))
        for number, (name, digest) in enumerate(zip(test.names, test.classifiers, strict=True))
    )
    drafts = (
        Candidate("default", (0, 1), (Gate("gain", 0.2, weights=DOUBT),), 0, 0, 0, ()),
        Candidate("single", (1,), (), 0, 0, 0, ()),
    )
    candidates = tuple(measured(draft, Ground(test, levels), promised=0.85) for draft in drafts)
    made = Cascade("things", test.classes, False, 0.0, device, levels, candidates, 0.85, 0.95, {}, test.data)
    return replace(tested(made, test), **changes)
