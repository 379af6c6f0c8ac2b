"""What champion and challenger are compared by: the evidence that the challenger is worse, and the proof that it is not.

Paired measures come from requests that both releases answer: of the canary's requests the champion answers copies, too,
and of the champion's the challenger does. Differences within a pair have a small variance, which decides how soon a
difference shows: 3 points among 500 answers of each arm are 1.3 standard errors, and among 500 pairs that differ in 3%
they are 4 and more. Clients label what they see, and some label it only where it is wrong. So a labelled pair of which a
client saw the canary's answer counts together with one of which a client saw the champion's: among equal releases the mean
of both is 0, whichever answers are labelled. In shadow there are only the latter, which favour the challenger if anybody:
they count as evidence against it, and prove nothing.

A challenger whose answers are proven to be the champion's own, but for a share of at most x, is right in at most x less of
them: such agreement is proof without any label. How sure a challenger is of itself is none.

Unpaired measures compare the two arms' own requests in small blocks: the mean of the canary's outcomes since the last
block less the mean of the champion's. As both are of the same time, a load that changes slows both and favours nobody.

Late is what takes longer than nearly all of the champion's recent answers, by a quantile that was fixed before. What is late
under all of the requests is compared in turns (turns.py).

All blocks and this latency are of one group of tenants each (pliant/fairness.py): nobody's requests are compared with those
of others, and what one group makes up is left out as a whole (pliant/betting.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal, Self

from pydantic import Field

from pliant.betting import Evidence, Hypothesis, slice_weights
from pliant.errors import InputError
from pliant.fairness import NOBODY
from pliant.state import Finite, Sum, Whole

Arm = Literal["champion", "canary"]
ARMS: tuple[Arm, Arm] = ("champion", "canary")

TRUTHS = ("accuracy", "agreement")
"""Of pairs: right or wrong by labels; whether both answers are the same. The proof of either lets a canary grow."""
UNPAIRED = ("late", "errors")
"""Of each arm's own requests: whether the answer came late, whether it failed."""
NAMES = (*TRUTHS, *UNPAIRED, "load")
"""load: how many answers come late where all requests are one arm's."""

LATE_QUANTILE = 0.95  # of the champion's latencies, beyond which an answer without a deadline is late
WINDOW, LEAST_WINDOW, RENEWED = 256, 128, 64  # latencies of the champion: kept, needed, and until the next reference
UNMATCHED = 1024  # labelled pairs that wait for one of the other arm, of a group of tenants


@dataclass(frozen=True, slots=True)
class Measure:
    """One measure. The margins are in its unit, mostly shares: 0.005 is half a point.

    `margin`: by how much the challenger may be worse (agreement: the share of answers that may differ). `weight`: its part
    of the probability of a false alarm, relative to the others'; 0: nothing is held against the challenger. `prove`: by how
    much it must be proven not to be worse; None: there is no proof. Raises `InputError` for a measure that does not exist or
    cannot be tested.
    """

    name: str
    margin: float
    weight: float = 1.0
    prove: float | None = None

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise InputError("measure", self.name, f"one of {', '.join(NAMES)}")
        if not 0 <= self.margin < 1:
            raise InputError(f"margin of {self.name}", self.margin, "at least 0 and below 1")
        if not 0 <= self.weight < 1e6:
            raise InputError(f"weight of {self.name}", self.weight, "at least 0, and finite")
        if self.prove is not None and not self.margin < self.prove < 1:
            raise InputError(f"prove of {self.name}", self.prove, "above its margin and below 1")


MARGIN = 0.0025
"""By how much a challenger's answers may be worse: a quarter of a point. A larger margin is noticed later."""
WORSE = 0.03
"""What growing needs proof against: a challenger that is right in so much less of its answers."""
LATER = 0.2
"""The same of lateness: so much more of its requests. Some 50 of them give proof."""
LOADED = 0.1
"""The same of all requests, in turns, of which some 40 pairs give proof."""
LOAD = Measure("load", 0.02, 0.05, prove=LOADED)
GUARDS = (Measure("late", 0.02, 0.05, prove=LATER), Measure("errors", 0.005, 0.1), LOAD)
MEASURES = (Measure("accuracy", MARGIN, 0.6, prove=WORSE), Measure("agreement", MARGIN, 0.0, prove=WORSE), *GUARDS)

Sums = Annotated[list[Sum], Field(min_length=4, max_length=4)]
"""Outcomes and their sum, of the champion and of the canary."""


@dataclass(slots=True)
class _Matched:
    """Differences of pairs of which a client saw the champion's answer, and of others: those that wait for each other.

    At most one of the two lists of a group of tenants is not empty.
    """

    champion: dict[int, list[Finite]] = field(default_factory=dict)
    canary: dict[int, list[Finite]] = field(default_factory=dict)

    def add(self, seen: Arm, difference: float, group: int = NOBODY) -> float | None:
        """Return the mean of this difference and the newest that waits for one of its arm; None: it waits, too."""
        own, others = (self.champion, self.canary) if seen == "champion" else (self.canary, self.champion)
        if waiting := others.get(group):
            return (difference + waiting.pop()) / 2
        own.setdefault(group, []).append(difference)
        del own[group][:-UNMATCHED]
        return None


@dataclass(slots=True)
class Comparison:
    """The outcomes of one measure, and the evidence from them. A measure without proof counts as proven."""

    measure: Measure
    evidence: Evidence
    proof: Evidence | None
    proven: bool
    worse: Whole = 0  # comparisons
    better: Whole = 0
    lost: Finite = 0.0  # sum of the differences
    blocks: dict[int, Sums] = field(default_factory=dict)  # by group
    total: Sums = field(default_factory=lambda: [0.0, 0.0, 0.0, 0.0])
    matched: _Matched = field(default_factory=_Matched)

    @classmethod
    def begun(cls, measure: Measure, target: float, horizon: int, alpha: float) -> Self:
        """Return a comparison without outcomes. `target`: the evidence that this measure alone needs; `horizon` of 0: it is
        paid in; `alpha`: the probability of a false proof."""
        hypothesis = Hypothesis(measure.margin, -1.0, target, horizon)
        evidence = Evidence(hypothesis) if horizon else Evidence.kept_back(hypothesis)
        proof = None if measure.prove is None else Evidence(Hypothesis(-measure.prove, -1.0, 1 / alpha, horizon))
        return cls(measure, evidence, proof, proven=proof is None)

    def add(self, difference: float, group: int = NOBODY, proves: bool = True) -> None:
        """Count how much worse the challenger was in one comparison, from -1 to 1, on a request of a group of tenants."""
        self.evidence.add(difference, group)
        self.worse += difference > 0
        self.better += difference < 0
        self.lost += difference
        if self.proof is not None and proves:
            self.proof.add(-difference, group)
            self.proven = self.proven or self.proof.value >= self.proof.hypothesis.target

    def add_seen(self, seen: Arm, difference: float, group: int = NOBODY) -> None:
        """Count the difference of a labelled pair of a canary, of which a client saw the answer of the arm `seen`."""
        mean = self.matched.add(seen, difference, group)
        if mean is not None:
            self.add(mean, group)

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
            what = {"late": "late answers", "errors": "failed answers"}[name]
            return f"{what}: {canary} in the canary, {champion} of the champion"
        if name == "agreement":
            return f"{self.worse} of {compared:,} answers differ from the champion's"
        points = 100 * self.lost / max(compared, 1)
        if name == "load":
            which = "more" if points > 0 else "less"
            return f"{abs(points):.2g} points {which} late than the champion with all requests, in {compared} pairs of turns"
        way = "worse" if points > 0 else "better"
        return f"{abs(points):.2g} points {way} by the labels of pairs of answers, compared {compared:,} times"

    def check(self) -> None:
        """Raise AssertionError where the counts do not fit together."""
        assert (self.proof is None) == (self.measure.prove is None), "a proof that is not wanted, or none that is"
        assert self.proven or self.proof is not None, "a lack of proof where none is needed"
        assert self.worse + self.better <= self.evidence.outcomes, "more differ than were compared"
        assert abs(self.lost) <= (self.worse + self.better) * (1 + 1e-9), "more was lost than can be"
        assert not any(block[0] and block[2] for block in self.blocks.values()), "a block with both arms is open"
        both = {group for group, waiting in self.matched.champion.items() if waiting and self.matched.canary.get(group)}
        assert not both, "labelled pairs of both arms wait for each other"
        for sums in (*self.blocks.values(), self.total):
            assert all(sums[at + 1] <= sums[at] for at in (0, 2)), "an arm's losses exceed its outcomes"
        parts = map(sum, zip(*self.blocks.values(), strict=True))
        assert all(part <= whole + 1e-6 for part, whole in zip(parts, self.total, strict=False)), "blocks too large"


FLOOR = 0.05  # by which a slice may be worse
SOON_OF_A_SLICE = 40  # matched pairs within which a floor that is missed shall show
MOST_SLICES = 512


@dataclass(slots=True)
class _Floor:
    """The labelled pairs of a slice, such as a class: evidence that the challenger is worse there by more than `FLOOR`."""

    evidence: Evidence
    matched: _Matched = field(default_factory=_Matched)


@dataclass(slots=True)
class Floors:
    """The floors of all slices. `value` is an e-process: the mean of theirs, weighted in the order in which they come.

    What their weights leave counts as 1.
    """

    target: float  # that `value` is to reach
    instalment: Sum = 0.0  # share of the wealth that is paid in at a time; 0: all is bet at once
    slices: dict[str, _Floor] = field(default_factory=dict)

    @property
    def value(self) -> float:
        return 1.0 + sum(
            weight * (floor.evidence.value - 1)
            for weight, floor in zip(slice_weights(), self.slices.values(), strict=False)
        )

    def add(self, name: str, seen: Arm | None, difference: float, group: int = NOBODY) -> None:
        """Count the difference of a labelled pair of a slice, in shadow without `seen`. Slices are at most `MOST_SLICES`."""
        floor = self.slices.get(name)
        if floor is None:
            if len(self.slices) >= MOST_SLICES:
                return
            weight = next(weight for number, weight in enumerate(slice_weights()) if number == len(self.slices))
            hypothesis = Hypothesis(FLOOR, -1.0, self.target / weight, 0 if self.instalment else SOON_OF_A_SLICE)
            floor = _Floor(Evidence.kept_back(hypothesis) if self.instalment else Evidence(hypothesis))
            floor.evidence.pay(self.instalment)
            self.slices[name] = floor
        mean = difference if seen is None else floor.matched.add(seen, difference, group)
        if mean is not None:
            floor.evidence.add(mean, group)

    def pay(self) -> None:
        """Pay in the next instalment of each slice."""
        for floor in self.slices.values():
            floor.evidence.pay(self.instalment)

    def sentence(self) -> str:
        """Return which slice has the most evidence against the challenger, in words."""
        worst = max(self.slices, key=lambda name: self.slices[name].evidence.value, default="")
        return f"worse by more than {100 * FLOOR:g} points on {worst}" if worst else "no slice has labels"


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
