"""An answer as it is remembered until its label comes, and whether a label shows that it was correct."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pliant.errors import InputError

Label = str | float


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer as it was given."""

    task: str
    version: str | int  # of what was served for the task
    candidate: str  # how it was answered, as far as a promise depends on it: of tokens, the operating point
    level: str  # name of the model that answered
    label: Label  # the class, or in a regression the value
    confidence: float
    promised: float | None  # the promised accuracy; None: no promise covers it, as a cascade that was cut short
    tolerance: float = 0.0  # regression: a value this near is correct
    classes: tuple[str, ...] = ()  # empty: a regression
    tenant: str = ""  # whose request it was
    former_levels: tuple[str, ...] = ()  # names of the models that ran before the one that answered
    former: tuple[tuple[Label, float], ...] = ()  # the label and the confidence that each of these gave

    def correct(self, label: Label) -> bool:
        """Return whether the answer was correct.

        Raises `InputError` for a label that is no class of the task, or in a regression no finite number.
        """
        if self.classes:
            if label not in self.classes:
                raise InputError("label", _shown(label), f"one of {_listed(self.classes)}")
            return label == self.label
        if isinstance(label, str | bool) or not math.isfinite(label):
            raise InputError("label", _shown(label), "a finite number, as the task is a regression")
        return abs(label - float(self.label)) <= self.tolerance


def _shown(label: Label) -> str:
    shown = repr(label)
    return shown if len(shown) <= 80 else shown[:80] + "..."


def _listed(classes: tuple[str, ...]) -> str:
    first = ", ".join(classes[:10])
    return first if len(classes) <= 10 else f"{first} and {len(classes) - 10} more"
