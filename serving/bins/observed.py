"""What is observed of a text of bins: its length, its launch's time over the profile, class and confidence, or embedding."""

from __future__ import annotations

from pliant.bins.artifact import Bins
from pliant.serving.answers import Completed
from pliant.serving.bins.answer import shares
from pliant.serving.bins.catalog import ServedStream
from pliant.serving.loop.drift import LENGTHS, Kind, Reading, class_readings
from pliant.serving.loop.observe import Observation
from pliant.watch.binning import logarithmic

# A duration over what the profile holds. Launches close in time share what slows them: a machine's other work, its clock.
FACTORS = Kind(logarithmic(0.1, 10), burst=8.0)


def observation(task: str, served: ServedStream, bin: str, number: int, length: int, result: Completed) -> Observation:
    """Return what is known of a text of `length` tokens. `number`: of its shape among the stream's own, or less than 0 where
    that is not known."""
    classes, readings = served.encoder.classes, [Reading(f"tokens of {task}", length, LENGTHS)]
    if (factor := _factor(served.bins, number, result.run_seconds)) is not None:
        readings.append(Reading(f"time of {task} over its profile", factor, FACTORS))
    label, confidence = result.output, None
    if classes:
        shares_K = shares(result.output)
        best = int(shares_K.argmax())
        label, confidence = classes[best], float(shares_K[best])
        readings += class_readings(task, classes, best, confidence)
    return Observation(
        task=task,
        version=served.version,
        outcome=result.outcome,
        origin={"stream_version": served.version, "bin": bin},
        measured={"queue_seconds": result.queue_seconds},
        label=label,
        confidence=confidence,
        readings=readings,
    )


def _factor(bins: Bins, number: int, seconds: float) -> float | None:
    known = 0 <= number < len(bins.seconds) and bins.seconds[number] > 0
    return seconds / bins.seconds[number] if known else None
