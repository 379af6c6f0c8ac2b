"""The controller of one rollout: shadow, canary in steps, turns at all requests, and a guard after the promotion.

    shadow --> canary at steps[0] --> ... --> steps[-1] --> load --> guard (it is the champion by now) --> promoted
       |                 |                                    |        |   (a last step of 1 is the promotion itself)
       `-----------------`------------------------------------`--------`--> taken back: evidence, broken, cancelled, or
                                                                            no decision in time

A pure state machine: events come in with the time, actions go out. It reads no clock and draws no random number, and its
whole state is plain JSON, exactly. Decisions are final: what comes later is ignored.

The evidence of all measures and slices is the weighted mean of their e-processes, and so one itself: a challenger that is
no worse than the margins is ever taken back on the evidence with a probability of at most alpha, over all measures, slices,
steps and looks together; in the guard, where evidence begins anew, with one of alpha again. Growing needs enough requests,
no evidence against it, and proof: that it is not much later, and beyond `UNPROVEN` of the requests that its answers are not
much worse, by labels or as they are the champion's own. Where nothing proves that, a person may decide. Evidence and proof
have to hold without any one group of tenants (pliant/fairness.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Literal

from pliant.errors import InputError
from pliant.fairness import GROUPS, Groups
from pliant.rollout.config import ALPHA, HELD_BACK, HOLD, INSTALMENTS, SOON, UNPROVEN, RolloutConfig
from pliant.rollout.events import (
    Action,
    Ask,
    Broken,
    CanaryOutcome,
    Cancelled,
    Event,
    Label,
    Note,
    Promote,
    SetShare,
    ShadowCompared,
    TakeBack,
    Tick,
    check_event,
)
from pliant.rollout.measures import LOADED, TRUTHS, WORSE, Arm, Comparison, Floors, Measure, Reference
from pliant.rollout.turns import ANSWERS, LEAST_TURN, PAIRS, TURNS, Turns
from pliant.state import Finite, Sum, Whole, read

TARGET = 1 / ALPHA  # evidence, of all measures together, that takes a challenger back
REMEMBERED = 2048  # ids of the latest events, which do not count twice
ASKS = 3600.0  # seconds of a step, or `SOON` further requests, after which a person is asked who waits for proof
GAP = 3600.0
"""Seconds that the time between two events counts as at most, so that a pause or a wrong clock decides nothing."""

Stage = Literal["shadow", "canary", "load", "guard", "promoted", "taken_back"]


@dataclass
class Rollout:
    """Decides what share of the requests a challenger answers. `handle` takes events and gives actions.

    It begins in shadow, or where no shadow is wanted as a canary with its first share; `share` says so before any event.
    All fields but the first are its state, which `asdict` and `restored` carry over a restart.
    """

    config: RolloutConfig = field(default_factory=RolloutConfig)
    schema: Literal[5] = 5
    stage: Stage = "shadow"
    reason: str = ""  # of the decision, or of the promotion that is guarded
    requests: Whole = 0  # answered by the canary
    copies: Whole = 0  # compared in shadow
    seconds: Sum = 0.0  # since the first event
    step: Whole = 0  # of the canary, an index
    step_count: Whole = 0  # requests (in shadow: copies) since the share was set
    step_seconds: Sum = 0.0
    last: Finite | None = None  # time of the latest event
    held: bool = False  # a note has said that the canary does not grow
    asks: bool = False  # a person has been told that nothing proves anything
    seen: dict[int, None] = field(default_factory=dict)  # digests of ids, the newest last
    groups: Groups = field(default_factory=Groups)
    references: dict[int, Reference] = field(default_factory=dict)  # by group of tenants
    comparisons: dict[str, Comparison] = field(default_factory=dict)
    floors: Floors = field(default_factory=lambda: Floors(TARGET))
    turns: Turns = field(default_factory=Turns)
    paid: Whole = 0  # instalments of the guard's evidence

    def __post_init__(self) -> None:
        self._weights = self.config.weights
        self._floors = 1 - sum(self._weights.values())
        if not self.comparisons:
            self.stage = "shadow" if self.config.shadow_requests else "canary"
            self.floors = Floors(TARGET / self._floors)
            self.comparisons = {measure.name: self._begun(measure) for measure in self.config.measures}

    def _begun(self, measure: Measure) -> Comparison:
        target = TARGET / (self._weights[measure.name] or 1.0)
        horizon = PAIRS if measure.name == "load" else self.config.shadow_requests + SOON
        return Comparison.begun(measure, target, 0 if self.stage == "guard" else horizon, ALPHA)

    @property
    def decided(self) -> bool:
        return self.stage in ("promoted", "taken_back")

    @property
    def share(self) -> float:
        """The share of requests that the challenger answers now."""
        if self.stage == "canary":
            return self.config.steps[self.step]
        if self.in_turns:
            return float(self.turns.arm(self.step_seconds) == "canary")
        return {"guard": 1.0 - HELD_BACK, "promoted": 1.0}.get(self.stage, 0.0)

    def copied(self, arm: Arm) -> float:
        """Return the share of this arm's answers whose request the other is to answer, too: of both arms about as many."""
        if self.decided or (self.stage == "shadow" and arm == "canary"):
            return 0.0
        fewer, share = {"canary": ("canary", self.share), "guard": ("champion", HELD_BACK)}.get(self.stage, ("", 1.0))
        return 1.0 if arm == fewer else min(share, self.config.shadow_share or 1.0)

    @property
    def in_turns(self) -> bool:
        """Whether champion and challenger take turns at all of the requests now."""
        return self.stage in ("load", "guard") and self.turns.held

    @property
    def _turn(self) -> float:
        """Seconds of a turn."""
        slowest = max((each.seconds or 0.0 for each in self.references.values()), default=0.0)
        step = self.config.step_seconds
        return max(step / TURNS, min(ANSWERS * slowest, step / 2), LEAST_TURN)

    @property
    def evidence(self) -> float:
        """The evidence that the challenger is worse, of all measures and slices. It takes it back at 1 / alpha."""
        measures = sum(self._weights[name] * each.evidence.value for name, each in self.comparisons.items())
        return measures + self._floors * self.floors.value

    def sentences(self) -> list[str]:
        """Return a sentence for each measure: its figures, and its evidence that the challenger is worse, or its proof."""
        return [
            f"{each.sentence()}; evidence {each.evidence.value:.3g}"
            + ", proven" * (each.proof is not None and each.proven)
            for each in self.comparisons.values()
        ]

    def handle(self, event: Event, now: float) -> list[Action]:
        """Take an event and return what is to be done. Raise `InputError` for a bad one; then nothing has changed.

        `now` is in seconds on the driver's clock. If it was set back, no time has passed.
        """
        check_event(event)
        if not math.isfinite(now):
            raise InputError("now", now, "a finite number of seconds")
        if self.decided:
            return []
        passed = 0.0 if self.last is None else min(max(now - self.last, 0.0), GAP)
        self.last = now
        self.seconds += passed
        self.step_seconds += passed
        match event:
            case Broken(reason):
                return self._take_back(f"it is broken: {reason}")
            case Cancelled(reason) if self.stage == "guard":
                self.stage = "promoted"
                return [Note(f"The guard has ended {self._place()}: {reason}.")]
            case Cancelled(reason):
                return self._take_back(f"cancelled by hand{reason and ': '}{reason}")
            case ShadowCompared() | CanaryOutcome() | Label():
                if not self._is_new(type(event).__name__, event.id):
                    return []
                self._count(event)
            case Tick():
                pass
        return self._decide()

    def _is_new(self, kind: str, id: str) -> bool:
        content = f"{kind} {id}".encode("utf-8", "surrogatepass")
        digest = int.from_bytes(blake2b(content, digest_size=8).digest(), "big")
        if digest in self.seen:
            return False
        self.seen[digest] = None
        if len(self.seen) > REMEMBERED:
            del self.seen[next(iter(self.seen))]
        return True

    def _count(self, event: ShadowCompared | CanaryOutcome | Label) -> None:
        group = self.groups.of(event.tenant)
        match event:
            case ShadowCompared():
                if self.stage == "shadow":
                    self.copies += 1
                    self.step_count += 1
                if event.agree is not None and "agreement" in self.comparisons:
                    self.comparisons["agreement"].add(float(not event.agree), group)
            case Label():
                difference = float(event.champion) - float(event.challenger)
                shadow, accuracy = self.stage == "shadow", self.comparisons.get("accuracy")
                if accuracy is not None and shadow:
                    accuracy.add(difference, group, proves=False)
                elif accuracy is not None:
                    accuracy.add_seen(event.seen, difference, group)
                for name in event.slices:
                    self.floors.add(name, None if shadow else event.seen, difference, group)
            case CanaryOutcome():
                self._count_outcome(event, group)

    def _count_outcome(self, event: CanaryOutcome, group: int) -> None:
        if self.stage != "shadow" and event.arm == "canary":
            self.requests += 1
            self.step_count += 1
        if not event.fair:
            return
        late, reference = event.late, self.references.setdefault(group, Reference())
        if late is None and event.latency is not None and reference.seconds is not None:
            late = event.latency > reference.seconds
        if event.arm == "champion" and event.latency is not None and self.stage != "guard":  # where it has no queue
            reference.add(event.latency)
        if self.stage == "shadow":  # there is nothing to compare with
            return
        self._add_outcome("errors", event.arm, float(event.error), group)
        if late is not None and self.stage == "canary":
            self._add_outcome("late", event.arm, float(late), group)
        elif late is not None:
            self.turns.add(event.arm, self.step_seconds - (event.latency or 0.0), late, group)

    def usual_latency(self, tenant: str = "") -> float:
        """Return the seconds that half of the champion's recent answers to a tenant's group took; 0 before it is known."""
        reference = self.references.get(self.groups.of(tenant))
        return (reference.usual if reference else None) or 0.0

    def _add_outcome(self, name: str, arm: Arm, loss: float, group: int) -> None:
        if name in self.comparisons:
            self.comparisons[name].add_outcome(arm, loss, group)

    def _pass(self) -> None:
        """End turns that are over, and pay in what is due of the guard's evidence."""
        if self.stage in ("load", "guard") and self.turns.is_over(self.step_seconds):
            compared = self.turns.difference()
            if compared is not None and "load" in self.comparisons:
                self.comparisons["load"].add(*compared)
            held = self.stage == "load" or ("load" in self.comparisons and self.turns.late() > LOADED)
            self.turns = self.turns.next(self._turn, held, self.step_seconds, f"{self.requests} {self.seconds}")
        if self.stage == "guard" and self.step_seconds >= self.paid * self.config.guard_seconds / INSTALMENTS:
            self.paid += 1
            self.floors.pay()
            for comparison in self.comparisons.values():
                comparison.evidence.pay(1 / INSTALMENTS)

    def _decide(self) -> list[Action]:
        self._pass()
        config, evidence = self.config, self.evidence
        if evidence >= TARGET:
            return self._take_back(f"{self._worst()}; evidence {evidence:.3g} over {TARGET:g}")
        if self.stage == "guard":
            if self.step_seconds < config.guard_seconds:
                return []
            self.stage = "promoted"
            return [SetShare(1.0), Note(f"The guard has ended {self._place()}, without enough evidence against it.")]
        if self.seconds >= config.max_seconds:
            obstacle = self._obstacle(evidence) or self._unproven(1.0) or "too few requests"
            return self._take_back(f"undecided after {config.max_seconds:g} s: {obstacle}")
        least = config.shadow_requests if self.stage == "shadow" else config.step_requests
        if self.step_count < least or self.step_seconds < config.step_seconds:
            return []
        if obstacle := self._obstacle(evidence):
            note: list[Action] = [] if self.held else [Note(f"The challenger stays {self._place()}: {obstacle}.")]
            self.held = True
            return note
        step = 0 if self.stage == "shadow" else self.step + 1
        last = step == len(config.steps) or config.steps[step] == 1.0
        if unproven := self._unproven(1.0 if last else config.steps[step]):
            ask = Ask(f"stays {self._place()} and asks: {unproven}")
            due = self.step_count >= least + SOON or self.step_seconds >= ASKS
            if self.asks or not due:
                return []
            self.asks = True
            return [ask]
        place, was = self._place(), self.stage
        self.step_count, self.step_seconds, self.held, self.asks, self.turns = 0, 0.0, False, False, Turns(self._turn)
        if last and was == "canary" and "load" in self.comparisons:
            self.stage = "load"
            return [SetShare(self.share), Note(f"The challenger takes turns at all requests, after it stayed {place}.")]
        if last:
            self.reason = f"promoted {place}: no worse than the champion; evidence against it {evidence:.2g}"
            self.stage = "promoted"
            if config.guard_seconds:
                self.stage, self.turns, self.floors = "guard", Turns(self._turn, False), Floors(TARGET, 1 / INSTALMENTS)
                self.comparisons = {each.name: self._begun(replace(each, prove=None)) for each in config.measures}
            return [SetShare(self.share), Promote(self.reason)]
        self.stage, self.step = "canary", step
        sentence = f"The challenger takes {config.steps[step]:.3g} of the traffic, after it stayed {place}."
        return [SetShare(self.share), Note(sentence)]

    def _obstacle(self, evidence: float) -> str:
        """Return why the challenger does not go on although it had its requests and its time; empty if it may."""
        if evidence >= HOLD:
            return f"{self._worst()}; evidence {evidence:.3g}, and it must be below {HOLD:g}"
        for each in self.comparisons.values() if self.stage != "shadow" else ():
            name = each.measure.name
            if name not in TRUTHS and not each.proven and (name != "load" or self.stage == "load"):
                return f"{name} is not yet proven to be less than {each.measure.prove:.2%} worse"
        return ""

    def _unproven(self, share: float) -> str:
        """Return what is not proven that a challenger with this share needs; empty if nothing."""
        truths = [self.comparisons[name] for name in TRUTHS if name in self.comparisons]
        least = self.config.steps[0]
        if share <= (UNPROVEN if least == 1 else max(UNPROVEN, least)) or any(each.proven for each in truths):
            return ""
        known = "; ".join(each.sentence() for each in truths if each.evidence.outcomes) or "there are no labels"
        return f"nothing proves that its answers are less than {100 * WORSE:g} points worse ({known})"

    def _take_back(self, reason: str) -> list[Action]:
        self.reason = f"taken back {self._place()}: {reason}"
        self.stage = "taken_back"
        return [SetShare(0.0), TakeBack(self.reason)]

    def _place(self) -> str:
        if self.stage == "shadow":
            return f"in shadow after {self.copies:,} copies"
        if self.stage == "load":
            return f"in turns at all of traffic after {self.requests:,} requests"
        if self.stage in ("guard", "promoted"):
            return f"{self.step_seconds / 3600:.2g} h after its promotion"
        return f"at {100 * self.share:.3g}% of traffic after {self.requests:,} requests"

    def _worst(self) -> str:
        """Return the figures of the measure with the most evidence against the challenger."""
        worst = max(self.comparisons, key=lambda name: self._weights[name] * self.comparisons[name].evidence.value)
        if self._floors * self.floors.value > self._weights[worst] * self.comparisons[worst].evidence.value:
            return self.floors.sentence()
        return self.comparisons[worst].sentence()

    def check(self) -> None:
        """Raise AssertionError if the state breaks an invariant."""
        assert list(self.comparisons) == [measure.name for measure in self.config.measures], "comparisons of others"
        assert 0 <= self.step < len(self.config.steps), "no such step"
        assert (self.decided or self.stage == "guard") == bool(self.reason), "a decision or a reason, without the other"
        assert self.step == 0 or self.stage != "shadow", "a step in shadow"
        assert self.requests == 0 or self.stage != "shadow", "requests answered in shadow"
        assert self.stage != "shadow" or self.config.shadow_requests, "a shadow that is not wanted"
        counted = self.copies if self.stage == "shadow" else max(self.requests, self.copies)
        assert 0 <= self.step_count <= counted, "more requests in a step than altogether"
        assert 0 <= self.step_seconds <= self.seconds * (1 + 1e-9) + 1e-6, "more time in a step than altogether"
        assert len(self.seen) <= REMEMBERED, "too many ids"
        assert len(self.turns.blocks) <= GROUPS + 1, "turns of too many groups"
        assert self.decided or self.evidence < TARGET, "evidence without a decision"
        for each in self.comparisons.values():
            each.check()


def restored(state: Any) -> Rollout:
    """Return the rollout of whose `asdict` this is the JSON. Raises `InputError` for a state that it cannot have given."""
    rollout = read(Rollout, state, "that of a rollout, as it was written")
    try:
        rollout.check()
    except AssertionError as error:
        raise InputError("stored rollout", "inconsistent", f"as it was written, but has {error}") from error
    return rollout
