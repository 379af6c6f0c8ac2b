"""Made-up tasks whose structure is known: how good every level is, and that all find the same texts hard."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pliant.cascade.artifact import LevelOutputs, LevelProfile, Outputs, PrunedOutputs, Pruning
from pliant.latency import LatencyTable

MASS = Pruning("mass", 0.9)


def table(seconds: float) -> LatencyTable:
    """One token costs nothing, 100 tokens `seconds`, but for a constant."""
    return LatencyTable((10, 100), (1,), ((0.3 * seconds,), (seconds,)))


def tables(levels: int) -> list[LatencyTable]:
    """Every level costs three times the one before."""
    return [table(0.001 * 3**level) for level in range(levels)]


def classification(
    seed: int,
    texts: int = 400,
    classes: int = 4,
    skills: Sequence[float] = (1.5, 3.0),
    noise: float = 0.3,
    pruned: Sequence[tuple[int, int, Pruning]] = (),
) -> Outputs:
    """`skills`: how far a level lifts the right class above the others on a text of mean difficulty."""
    rng = np.random.default_rng(seed)
    label_R = rng.integers(classes, size=texts)
    hard_R = rng.gumbel(0, 1.0, texts)
    length_R = rng.integers(8, 90, texts).astype(np.int32)
    base_RK = rng.normal(0, 0.5, (texts, classes))

    def said(skill: float) -> np.ndarray:
        logits_RK = base_RK + rng.normal(0, noise, (texts, classes))
        logits_RK[np.arange(texts), label_R] += skill - hard_R
        return (1.5 * logits_RK).astype(np.float32)

    levels = tuple(LevelOutputs(said(skill), length_R) for skill in skills)
    less = tuple(
        PrunedOutputs(before, level, rule, said(skills[level]), (length_R * 0.8).astype(np.int32), kept(texts))
        for before, level, rule in pruned
    )
    return outputs(tuple(map(str, range(classes))), label_R.astype(np.float64), levels, less)


def regression(seed: int, texts: int = 400, errors: Sequence[float] = (0.6, 0.3)) -> Outputs:
    """`errors`: standard deviation of a level's error; it grows with the value."""
    rng = np.random.default_rng(seed)
    value_R = rng.uniform(0, 5, texts)
    length_R = rng.integers(8, 90, texts).astype(np.int32)
    shared_R = rng.normal(0, 1, texts)

    def said(error: float) -> np.ndarray:
        wrong_R = (0.7 * shared_R + 0.7 * rng.normal(0, 1, texts)) * error * (0.3 + 0.4 * value_R)
        return (value_R + wrong_R).astype(np.float32)[:, None]

    return outputs((), value_R, tuple(LevelOutputs(said(error), length_R) for error in errors), ())


def outputs(classes, label_R, levels, pruned) -> Outputs:
    names = tuple(f"level {number}" for number in range(len(levels)))
    return Outputs("made up", classes, names, names, label_R, levels, pruned, "none")


def kept(texts: int) -> np.ndarray:
    return np.full(texts, 0.75, np.float32)


def profiles(levels: int, regression: bool = False) -> tuple[LevelProfile, ...]:
    """Uncalibrated."""
    spread = (2.5, 1.0, -1.0, 0.3, 0.0, 0.0, -3.0, 1.0) if regression else ()
    return tuple(
        LevelProfile(f"level {i}", "", 1.0, spread, 0, 0, 0, one, table(0.0011 * 3**i))
        for i, one in enumerate(tables(levels))
    )
