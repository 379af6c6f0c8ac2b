"""Describes a task as JSON values: its classes, levels, candidates and promised accuracy."""

from __future__ import annotations

from typing import Any

from pliant.cascade.artifact import Candidate, Cascade, LevelProfile
from pliant.serving.cascade.catalog import ServedLevel, ServedTask


def described(served: ServedTask) -> dict[str, Any]:
    """Return a task as GET /tasks lists it."""
    cascade = served.cascade
    levels = zip(cascade.levels, served.levels, strict=True)
    return {
        "name": cascade.task,
        "version": served.version,
        "digest": served.digest,
        "classes": list(cascade.classes),
        "pair": cascade.pair,
        "max_length": served.max_length,
        "tolerance": cascade.tolerance if not cascade.classes else None,
        "device": cascade.device,
        "precision": cascade.precision,
        "target": cascade.target,
        "confidence": cascade.confidence,
        "levels": [_level(profile, level) for profile, level in levels],
        "candidates": [_candidate(cascade, candidate) for candidate in cascade.candidates],
    }


def _level(profile: LevelProfile, level: ServedLevel) -> dict[str, Any]:
    return {
        "name": profile.name,
        "version": level.version,
        "digest": level.digest,
        "max_length": level.max_length,
        "temperature": profile.temperature,
        "accuracy": profile.accuracy,
        "calibration_error": profile.error,
    }


def _candidate(cascade: Cascade, candidate: Candidate) -> dict[str, Any]:
    return {
        "name": candidate.name,
        "levels": [cascade.levels[level].name for level in candidate.levels],
        "accuracy": candidate.accuracy,
        "promised": candidate.promised,
        "test_accuracy": cascade.test_accuracy.get(candidate.name),
        "seconds": candidate.seconds,
        "shares": list(candidate.shares),
        "kept": candidate.kept,
    }
