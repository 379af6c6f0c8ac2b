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

from dataclasses import dataclass, field
from typing import Annotated, Literal, Self

from pydantic import Field

from pliant.errors import InputError
from pliant.fairness import NOBODY
from pliant.rollout.evidence import Evidence, Hypothesis
from pliant.state import Finite, Sum, Whole

Arm = Literal["champion", "canary"]
ARMS: tuple[Arm, Arm] = ("champion", "canary")

PAIRED = ("accuracy", "score", "utility")
"""Labels: right or wrong; a score such as the probability of the right label. Without labels: what an answer is worth."""
UNPAIRED = ("outcome", "late", "errors")
"""Of each arm's own requests: what the answer was worth, whether it came late, whether it failed."""
NAMES = (*PAIRED, "agreement", *UNPAIRED)

LATE_QUANTILE = 0.95  # of the champion's latencies, beyond which an answer without a deadline is late
WINDOW, LEAST_WINDOW, RENEWED = 256, 128, 64  # latencies of the champion: kept, needed, and until the next reference


@dataclass(frozen=True, slots=True)
class Measure:
    """One measure. The margins are in its unit, mostly shares: 0.005 is half a point.

    `margin`: by how much the challenger may be worse (agreement: the share of answers that may differ). `weight`: its
    part of the probability of a false alarm, relative to the others'. `required`: comparisons without which the canary
    does not grow. `prove`: growing needs proof that the challenger is not worse by as much; None: none is needed.
    Raises `InputError` for a measure that does not exist or cannot be tested.
    """

    name: str
    margin: float
    weight: float = 1.0
    required: int = 0
    prove: float | None = None

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise InputError("measure", self.name, f"one of {', '.join(NAMES)}")
        if not 0 <= self.margin < 1 or (self.name == "agreement" and self.margin == 0):
            raise InputError(f"margin of {self.name}", self.margin, "at least 0 (agreement: above 0) and below 1")
        if not 0 < self.weight < 1e6 or self.required < 0:
            raise InputError(f"weight and required of {self.name}", (self.weight, self.required), "above 0; at least 0")
        if self.prove is not None and not self.margin < self.prove < 1:
            raise InputError(f"prove of {self.name}", self.prove, "above its margin and below 1")


MARGIN = 0.0025
"""By how much a challenger's answers may be worse: a quarter of a point. A larger margin is noticed later."""
LATER = 0.2
"""What growing needs proof against: a challenger that is late in so much more of its requests. Some 50 of them give it."""
GUARDS = (Measure("late", 0.02, 0.1, prove=LATER), Measure("errors", 0.005, 0.1))
MIXED = (
    Measure("accuracy", MARGIN, 0.15),
    Measure("score", MARGIN, 0.35),
    Measure("utility", MARGIN, 0.3),
    *GUARDS,
)
"""Where it is not known which of them will come."""


Sums = Annotated[list[Sum], Field(min_length=4, max_length=4)]
"""Outcomes and their sum, of the champion and of the canary."""


@dataclass(slots=True)
class Comparison:
    """The outcomes of one measure, and the evidence from them. A measure that needs no proof counts as proven."""

    measure: Measure
    evidence: Evidence
    proof: Evidence | None
    proven: bool
    worse: Whole = 0  # comparisons
    better: Whole = 0
    lost: Finite = 0.0  # sum of the differences
    blocks: dict[int, Sums] = field(default_factory=dict)  # by group
    total: Sums = field(default_factory=lambda: [0.0, 0.0, 0.0, 0.0])

    @classmethod
    def begun(cls, measure: Measure, target: float, horizon: int, alpha: float) -> Self:
        """Return a comparison without outcomes. `target`: the evidence that this measure alone needs; `alpha`: the
        probability of a false proof."""
        evidence = Evidence(Hypothesis(measure.margin, 0.0 if measure.name == "agreement" else -1.0, target, horizon))
        proof = None if measure.prove is None else Evidence(Hypothesis(-measure.prove, -1.0, 1 / alpha, horizon))
        return cls(measure, evidence, proof, proven=proof is None)

    @property
    def enough(self) -> bool:
        """Whether the canary may grow as far as this measure says, evidence against it apart."""
        return self.proven and self.evidence.outcomes >= self.measure.required

    def add(self, difference: float, group: int = NOBODY) -> None:
        """Count how much worse the challenger was in one comparison, from -1 to 1, on a request of a group of tenants."""
        self.evidence.add(difference, group)
        self.worse += difference > 0
        self.better += difference < 0
        self.lost += difference
        if self.proof is not None:
            self.proof.add(-difference, group)
            self.proven = self.proven or self.proof.value >= self.proof.hypothesis.target

    def add_outcome(self, arm: Arm, loss: float, group: int = NOBODY) -> None:
        """Count an outcome of one arm, from 0 (as good as can be) to 1, of a request of a group of tenants. It is compared
        once the other arm has some of that group."""
        if not 0 <= loss <= 1:
            raise InputError(f"outcome of {self.measure.name}", loss, "from 0 to 1")
        first, block = 2 * ARMS.index(arm), self.blocks.setdefault(group, [0.0, 0.0, 0.0, 0.0])
        for sums in (block, self.total):
            sums[first] += 1
            sums[first + 1] += loss
        if block[0] and block[2]:
            del self.blocks[group]
            self.add(block[3] / block[2] - block[1] / block[0], group)

    def sentence(self) -> str:
        """Return the figures in words."""
        name, compared = self.measure.name, self.evidence.outcomes
        if name in UNPAIRED:
            champion, canary = (
                f"{total / outcomes:.1%} of {outcomes:,.0f}" if outcomes else "none"
                for outcomes, total in (self.total[:2], self.total[2:])
            )
            what = {"late": "late answers", "errors": "failed answers", "outcome": "utility lost"}[name]
            return f"{what}: {canary} in the canary, {champion} of the champion"
        if name == "agreement":
            return f"{self.worse} of {compared:,} answers differ, and {self.measure.margin:.1%} may"
        if name == "accuracy":
            return f"{self.worse} of {compared:,} paired answers worse, {self.better} better"
        points = 100 * self.lost / max(compared, 1)
        what = {"score": "scores with the label", "utility": "utilities"}[name]
        return f"{what} of {compared:,} paired answers {abs(points):.2g} points {'lower' if points > 0 else 'higher'}"

    def check(self) -> None:
        """Raise AssertionError where the counts do not fit together."""
        assert (self.proof is None) == (self.measure.prove is None), "a proof that is not wanted, or none that is"
        assert self.proven or self.proof is not None, "a lack of proof where none is needed"
        assert self.worse + self.better <= self.evidence.outcomes, "more differ than were compared"
        assert abs(self.lost) <= (self.worse + self.better) * (1 + 1e-9), "more was lost than can be"
        assert not any(block[0] and block[2] for block in self.blocks.values()), "a block with both arms is open"
        for sums in (*self.blocks.values(), self.total):
            assert all(sums[at + 1] <= sums[at] for at in (0, 2)), "an arm's losses exceed its outcomes"
        parts = map(sum, zip(*self.blocks.values(), strict=True))
        assert all(part <= whole + 1e-6 for part, whole in zip(parts, self.total, strict=False)), "blocks too large"


@dataclass(slots=True)
class Reference:
    """The latency that few of the champion's answers exceed: a quantile of the latest ones, renewed now and then."""

    latencies: list[Sum] = field(default_factory=list)  # seconds, at most `WINDOW`
    new: Whole = 0  # since the reference was renewed
    seconds: Sum | None = None
    usual: Sum | None = None  # seconds that half of the latest ones took at most, at that time

    def add(self, seconds: float) -> None:
        """Count a latency of the champion."""
        self.latencies.append(seconds)
        del self.latencies[:-WINDOW]
        self.new += 1
        if len(self.latencies) >= LEAST_WINDOW and (self.seconds is None or self.new >= RENEWED):
            ordered = sorted(self.latencies)
            self.seconds = ordered[int(LATE_QUANTILE * len(ordered))]
            self.usual = ordered[len(ordered) // 2]
            self.new = 0
