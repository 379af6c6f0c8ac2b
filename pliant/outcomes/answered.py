"""An answer as it is remembered until its label comes, and whether a label shows that it was correct."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from pliant.errors import InputError

Label = str | float
DIGEST_BYTES = 16  # of an id: far too many for two ids to have the same


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


class Row(NamedTuple):
    """An answer as it is kept. Labels are numbers: the place of a class, or in a regression the value."""

    sequence: int  # 0 for the first answer of all, counted on over restarts
    digest: bytes  # of its id
    at: float
    answer: float  # the label given
    confidence: float
    common: Answered  # what it shares with others: all but label, confidence and `former`
    former: tuple[float, ...] = ()  # label and confidence of each former level, in turn
    label: float = math.nan  # the label reported; NaN: none yet

    @property
    def answered(self) -> Answered:
        """The answer as it was given."""
        labels = [_label(self.common, number) for number in self.former[::2]]
        former = tuple(zip(labels, self.former[1::2], strict=True))
        return replace(self.common, label=_label(self.common, self.answer), confidence=self.confidence, former=former)

    @property
    def reported(self) -> Label | None:
        """The label that was reported; None if none was."""
        return None if math.isnan(self.label) else _label(self.common, self.label)


def digest_of(id: str) -> bytes:
    """Return the digest of an id; clients may ask for any text, also for one that UTF-8 cannot hold."""
    return hashlib.blake2b(id.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).digest()


def number_of(answered: Answered, label: Label) -> float:
    """Return a label as a number: the place of a class, or in a regression the value."""
    return float(answered.classes.index(str(label)) if answered.classes else label)


def _label(answered: Answered, number: float) -> Label:
    """Return the label that `number_of` turned into this number."""
    return answered.classes[int(number)] if answered.classes else number


def _shown(label: Label) -> str:
    shown = repr(label)
    return shown if len(shown) <= 80 else shown[:80] + "..."


def _listed(classes: tuple[str, ...]) -> str:
    first = ", ".join(classes[:10])
    return first if len(classes) <= 10 else f"{first} and {len(classes) - 10} more"
