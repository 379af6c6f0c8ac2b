"""What champion and challenger are compared by, and the evidence that the challenger is worse.

Paired measures come from requests that both releases answer: of the canary's requests the champion answers copies, too,
and of the champion's the challenger does in shadow. Differences within a pair have a small variance, which decides how
soon a difference shows: 3 points among 500 answers of each arm are 1.3 standard errors, and among 500 pairs that differ
in 3% they are 4 and more.

Unpaired measures compare the two arms' own requests in small blocks: the mean of the canary's outcomes since the last
block less the mean of the champion's. As both are of the same time, a load that changes slows both and favours nobody.

Late is what takes longer than nearly all of the champion's recent answers, by a quantile that was fixed before.

Both blocks and this latency are of one group of tenants each (pliant/fairness.py): nobody's requests are compared with those
of others, and what one group makes up is left out as a whole (evidence.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from pliant.errors import InputError
from pliant.fairness import NOBODY
from pliant.rollout.evidence import Evidence, Hypothesis
from pliant.rollout.state import count, field, group_numbers, items, numbers, real, table, text

Arm = Literal["champion", "canary"]
ARMS: tuple[Arm, Arm] = ("champion", "canary")

PAIRED = ("accuracy", "score", "utility")
"""Labels: right or wrong; a score such as the probability of the right label. Without labels: what an answer is worth."""
UNPAIRED = ("outcome", "late", "errors")
"""Of each arm's own requests: what the answer was worth, whether it came late, whether it failed."""
NAMES = (*PAIRED, "agreement", *UNPAIRED)

WINDOW, LEAST_WINDOW, RENEWED = 256, 128, 64  # latencies of the champion: kept, needed, and until the next reference


@dataclass(frozen=True, slots=True)
class Measure:
    """One measure. The margins are in its unit, mostly shares: 0.005 is half a point.

    `margin`: by how much the challenger may be worse (agreement: the share of answers that may differ). `weight`: its
    part of the probability of a false alarm, relative to the others'. `required`: comparisons without which the canary
    does not grow. `prove`: growing needs proof that the challenger is not worse by as much; None: none is needed.
    """

    name: str
    margin: float
    weight: float = 1.0
    required: int = 0
    prove: float | None = None

    def check(self) -> None:
        """Raise `InputError` for a measure that does not exist or cannot be tested."""
        if self.name not in NAMES:
            raise InputError("measure", self.name, f"one of {', '.join(NAMES)}")
        if not 0 <= self.margin < 1 or (self.name == "agreement" and self.margin == 0):
            raise InputError(f"margin of {self.name}", self.margin, "at least 0 (agreement: above 0) and below 1")
        if not 0 < self.weight < 1e6 or self.required < 0:
            raise InputError(f"weight and required of {self.name}", (self.weight, self.required), "above 0; at least 0")
        if self.prove is not None and not self.margin < self.prove < 1:
            raise InputError(f"prove of {self.name}", self.prove, "above its margin and below 1")

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Measure:
        """Return the measure that `asdict` was called on. Raises `InputError` for a damaged state."""
        if isinstance(state, Mapping) and set(state) - {each.name for each in fields(cls)}:
            raise InputError("measure", sorted(state), "fields of this version alone")
        prove = None if field(state, "prove") is None else real(state, "prove", 0, 1)
        margin, weight = real(state, "margin", 0, 1), real(state, "weight", 0, 1e6)
        return cls(text(state, "name"), margin, weight, count(state, "required"), prove)


MARGIN = 0.0025
"""By how much a challenger's answers may be worse: a quarter of a point. A larger margin is noticed later."""
LATER = 0.2
"""What growing needs proof against: a challenger that is late in so much more of its requests. Some 50 of them give it."""
GUARDS = (Measure("late", 0.02, 0.1, prove=LATER), Measure("errors", 0.005, 0.1))
CORRECTNESS = (Measure("accuracy", MARGIN, 0.8), *GUARDS)
"""For labels that say no more than right or wrong."""
LABELLED = (Measure("accuracy", MARGIN, 0.25), Measure("score", MARGIN, 0.55), *GUARDS)
"""For labels where both releases give calibrated probabilities, which tell much more."""
UNLABELLED = (Measure("utility", MARGIN, 0.8), *GUARDS)
"""For calibrated confidences without labels."""
MIXED = (
    Measure("accuracy", MARGIN, 0.15),
    Measure("score", MARGIN, 0.35),
    Measure("utility", MARGIN, 0.3),
    *GUARDS,
)
"""Where it is not known which of them will come."""


class Comparison:
    """The outcomes of one measure, and the evidence from them. `target` is the evidence that this measure alone needs.

    `alpha` is the probability of a false proof. A measure that needs no proof counts as proven.
    """

    def __init__(self, measure: Measure, target: float, horizon: int, alpha: float) -> None:
        low = 0.0 if measure.name == "agreement" else -1.0
        self.measure = measure
        self.evidence = Evidence(Hypothesis(measure.margin, low, target, horizon))
        self._proof: Evidence | None = None
        if measure.prove is not None:
            self._proof = Evidence(Hypothesis(-measure.prove, -1.0, 1 / alpha, horizon))
        self._alpha = alpha
        self.proven = self._proof is None
        self.worse = self.better = 0  # comparisons
        self._lost = 0.0  # sum of the differences
        self._blocks: dict[int, list[float]] = {}  # by group: outcomes and their sum, of each arm
        self._total = [0.0, 0.0, 0.0, 0.0]

    @property
    def enough(self) -> bool:
        """Whether the canary may grow as far as this measure says, evidence against it apart."""
        return self.proven and self.evidence.outcomes >= self.measure.required

    def add(self, difference: float, group: int = NOBODY) -> None:
        """Count how much worse the challenger was in one comparison, from -1 to 1, on a request of a group of tenants."""
        self.evidence.add(difference, group=group)
        self.worse += difference > 0
        self.better += difference < 0
        self._lost += difference
        if self._proof is not None:
            self._proof.add(-difference, group=group)
            self.proven = self.proven or self._proof.value >= 1 / self._alpha

    def add_outcome(self, arm: Arm, loss: float, group: int = NOBODY) -> None:
        """Count an outcome of one arm, from 0 (as good as can be) to 1, of a request of a group of tenants. It is compared
        once the other arm has some of that group."""
        if not 0 <= loss <= 1:
            raise InputError(f"outcome of {self.measure.name}", loss, "from 0 to 1")
        first, block = 2 * ARMS.index(arm), self._blocks.setdefault(group, [0.0, 0.0, 0.0, 0.0])
        for sums in (block, self._total):
            sums[first] += 1
            sums[first + 1] += loss
        if block[0] and block[2]:
            del self._blocks[group]
            self.add(block[3] / block[2] - block[1] / block[0], group)

    def sentence(self) -> str:
        """Return the figures in words."""
        name, compared = self.measure.name, self.evidence.outcomes
        if name in UNPAIRED:
            champion, canary = (self._mean(index) for index in (0, 2))
            what = {"late": "late answers", "errors": "failed answers", "outcome": "utility lost"}[name]
            return f"{what}: {canary} in the canary, {champion} of the champion"
        if name == "agreement":
            return f"{self.worse} of {compared:,} answers differ, and {self.measure.margin:.1%} may"
        if name == "accuracy":
            return f"{self.worse} of {compared:,} paired answers worse, {self.better} better"
        points = 100 * self._lost / max(compared, 1)
        what = {"score": "scores with the label", "utility": "utilities"}[name]
        return f"{what} of {compared:,} paired answers {abs(points):.2g} points {'lower' if points > 0 else 'higher'}"

    def _mean(self, index: int) -> str:
        outcomes, total = self._total[index : index + 2]
        return f"{total / outcomes:.1%} of {outcomes:,.0f}" if outcomes else "none"

    def check(self) -> None:
        """Raise AssertionError where the counts do not fit together."""
        assert self.worse + self.better <= self.evidence.outcomes, "more differ than were compared"
        assert self.evidence.value >= 0, "negative evidence"
        assert abs(self._lost) <= (self.worse + self.better) * (1 + 1e-9), "more was lost than can be"
        assert not any(block[0] and block[2] for block in self._blocks.values()), "a block with both arms is open"
        for sums in (*self._blocks.values(), self._total):
            assert all(0 <= sums[at + 1] <= sums[at] for at in (0, 2)), "an arm's losses exceed its outcomes"
        parts = map(sum, zip(*self._blocks.values(), strict=True))
        assert all(part <= whole + 1e-6 for part, whole in zip(parts, self._total, strict=False)), "blocks too large"

    def to_dict(self) -> dict[str, Any]:
        """Return the state as plain JSON values, exactly; the measure is left out."""
        return {
            "evidence": self.evidence.to_dict(),
            "proof": None if self._proof is None else self._proof.to_dict(),
            "proven": self.proven,
            "worse": self.worse,
            "better": self.better,
            "lost": self._lost,
            "blocks": {str(group): list(block) for group, block in self._blocks.items()},
            "total": list(self._total),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what `to_dict` gave. Raises `InputError` for a damaged state."""
        self.evidence = Evidence.from_dict(self.evidence.hypothesis, table(state, "evidence"))
        if self._proof is not None:
            self._proof = Evidence.from_dict(self._proof.hypothesis, table(state, "proof"))
        if type(proven := field(state, "proven")) is not bool or not (proven or self._proof):
            raise InputError("proven", proven, "true or false, and true where no proof is needed")
        self.proven = proven
        self.worse, self.better = count(state, "worse"), count(state, "better")
        self._lost = real(state, "lost", -1e15, 1e15)
        self._total, blocks = numbers(state, "total", 4, 0.0, 1e15), table(state, "blocks")
        self._blocks = {group: numbers(blocks, name, 4, 0.0, 1e15) for name, group in group_numbers(blocks).items()}


class Reference:
    """The latency that few of the champion's answers exceed: a quantile of the latest ones, renewed now and then."""

    def __init__(self, quantile: float) -> None:
        self._quantile = quantile
        self._latencies: deque[float] = deque(maxlen=WINDOW)  # seconds
        self._new = 0  # since the reference was renewed
        self.seconds: float | None = None
        self.usual: float | None = None  # seconds that half of the latest ones took at most, at that time

    def add(self, seconds: float) -> None:
        """Count a latency of the champion."""
        self._latencies.append(seconds)
        self._new += 1
        if len(self._latencies) >= LEAST_WINDOW and (self.seconds is None or self._new >= RENEWED):
            ordered = sorted(self._latencies)
            self.seconds = ordered[min(int(self._quantile * len(ordered)), len(ordered) - 1)]
            self.usual = ordered[len(ordered) // 2]
            self._new = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the state as plain JSON values, exactly; the quantile is left out."""
        fixed = {"seconds": self.seconds, "usual": self.usual}
        return {"latencies": list(self._latencies), "new": self._new, **fixed}

    @classmethod
    def from_dict(cls, quantile: float, state: Mapping[str, Any]) -> Reference:
        """Return the reference that `to_dict` was called on. Raises `InputError` for a damaged state."""
        reference = cls(quantile)
        length = len(items(state, "latencies", WINDOW))
        reference._latencies.extend(numbers(state, "latencies", length, 0.0, 1e9))
        reference._new = count(state, "new")
        for name in ("seconds", "usual"):
            setattr(reference, name, None if field(state, name) is None else real(state, name, 0.0, 1e9))
        return reference


def plain(measures: tuple[Measure, ...]) -> list[dict[str, Any]]:
    """Return the measures as plain JSON values."""
    return [asdict(measure) for measure in measures]
