"""The controller of one rollout: shadow, canary in steps, then promoted or taken back.

    shadow --> canary at steps[0] --> ... --> steps[-1] --> promoted
       |                 |                                  (a last step of 1 is the promotion itself)
       `-----------------`--> taken back: evidence, broken, cancelled, or no decision in time

A pure state machine: events come in with the time, actions go out. It reads no clock and draws no random number, and its
whole state is plain JSON, exactly. Decisions are final: what comes later is ignored.

The evidence of all measures is the weighted mean of their e-processes, and so one itself: a challenger that is no worse
than the margins is ever taken back on the evidence with a probability of at most alpha, over all measures, steps and
looks together. Growing needs enough requests, no evidence against it, and what proof a measure demands: of lateness it does.
Both evidence and proof have to hold without any one group of tenants (pliant/fairness.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Literal, get_args

from pliant.errors import InputError
from pliant.fairness import Groups
from pliant.rollout.config import RolloutConfig
from pliant.rollout.events import (
    Action,
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
from pliant.rollout.measures import Arm, Comparison, Reference
from pliant.rollout.state import count, field, group_numbers, items, real, table, text

SCHEMA = 2
REMEMBERED = 2048  # ids of the latest events, which do not count twice
MAX_TENANTS = 100_000  # of a stored state

Stage = Literal["shadow", "canary", "promoted", "taken_back"]


class Rollout:
    """Decides what share of the requests a challenger answers. `handle` takes events and gives actions.

    It begins in shadow, or where no shadow is wanted as a canary with its first share; `share` says so before any event.
    """

    def __init__(self, config: RolloutConfig | None = None) -> None:
        self.config = config or RolloutConfig()
        self.config.check()
        self.stage: Stage = "shadow" if self.config.shadow_requests else "canary"
        self.reason = ""  # of the decision
        self.requests = 0  # answered by the canary
        self.copies = 0  # compared in shadow
        self.seconds = 0.0  # since the first event
        self._step = 0  # of the canary, an index
        self._step_count = 0  # requests (in shadow: copies) since the share was set
        self._step_seconds = 0.0
        self._last: float | None = None  # time of the latest event
        self._held = False  # a note has said that the canary does not grow
        self._seen: dict[int, None] = {}  # digests of ids, the newest last
        self._groups = Groups()
        self._references: dict[int, Reference] = {}  # by group of tenants
        self._weights = self.config.weights
        self._comparisons = _comparisons(self.config)

    @property
    def decided(self) -> bool:
        return self.stage in ("promoted", "taken_back")

    @property
    def share(self) -> float:
        """The share of requests that the challenger answers now."""
        if self.stage == "canary":
            return self.config.steps[self._step]
        return 1.0 if self.stage == "promoted" else 0.0

    @property
    def evidence(self) -> float:
        """The evidence that the challenger is worse, of all measures together. It takes it back at 1 / alpha."""
        return sum(self._weights[name] * each.evidence.value for name, each in self._comparisons.items())

    def sentences(self) -> list[str]:
        """Return a sentence for each measure: its figures, and its evidence that the challenger is worse."""
        return [f"{each.sentence()}; evidence {each.evidence.value:.3g}" for each in self._comparisons.values()]

    def handle(self, event: Event, now: float) -> list[Action]:
        """Take an event and return what is to be done. Raise `InputError` for a bad one; then nothing has changed.

        `now` is in seconds on the driver's clock. If it was set back, no time has passed.
        """
        check_event(event)
        if not math.isfinite(now):
            raise InputError("now", now, "a finite number of seconds")
        if self.decided:
            return []
        self._pass_time(now)
        match event:
            case Broken(reason):
                return self._take_back(f"it is broken: {reason}")
            case Cancelled(reason):
                return self._take_back(f"cancelled by hand{reason and ': '}{reason}")
            case ShadowCompared() | CanaryOutcome() | Label():
                if not self._is_new(type(event).__name__, event.id):
                    return []
                self._count(event)
            case Tick():
                pass
        return self._decide()

    def _pass_time(self, now: float) -> None:
        passed = 0.0 if self._last is None else min(max(now - self._last, 0.0), self.config.gap)
        self._last = now
        self.seconds += passed
        self._step_seconds += passed

    def _is_new(self, kind: str, id: str) -> bool:
        content = f"{kind} {id}".encode("utf-8", "surrogatepass")
        digest = int.from_bytes(blake2b(content, digest_size=8).digest(), "big")
        if digest in self._seen:
            return False
        self._seen[digest] = None
        if len(self._seen) > REMEMBERED:
            del self._seen[next(iter(self._seen))]
        return True

    def _count(self, event: ShadowCompared | CanaryOutcome | Label) -> None:
        group = self._groups.of(event.tenant)
        match event:
            case ShadowCompared():
                if self.stage == "shadow":
                    self.copies += 1
                    self._step_count += 1
                if event.agree is not None:
                    self._add("agreement", float(not event.agree), group)
                self._add_pair("utility", event.utility_champion, event.utility_challenger, group)
            case Label():
                self._add_pair("accuracy", float(event.champion), float(event.challenger), group)
                self._add_pair("score", event.score_champion, event.score_challenger, group)
            case CanaryOutcome():
                self._count_outcome(event, group)

    def _count_outcome(self, event: CanaryOutcome, group: int) -> None:
        if self.stage == "canary" and event.arm == "canary":
            self.requests += 1
            self._step_count += 1
        if not event.fair:
            return
        late, reference = event.late, self._references.setdefault(group, Reference(self.config.late_quantile))
        if late is None and event.latency is not None and reference.seconds is not None:
            late = event.latency > reference.seconds
        if event.arm == "champion" and event.latency is not None:
            reference.add(event.latency)
        if self.stage != "canary":  # in shadow there is nothing to compare with
            return
        self._add_outcome("errors", event.arm, float(event.error), group)
        if late is not None:
            self._add_outcome("late", event.arm, float(late), group)
        if event.utility is not None:
            self._add_outcome("outcome", event.arm, 1 - event.utility, group)

    def usual_latency(self, tenant: str = "") -> float:
        """Return the seconds that half of the champion's recent answers to a tenant's group took; 0 before it is known."""
        reference = self._references.get(self._groups.of(tenant))
        return (reference.usual if reference else None) or 0.0

    def _add(self, name: str, difference: float, group: int) -> None:
        if name in self._comparisons:
            self._comparisons[name].add(difference, group)

    def _add_pair(self, name: str, champion: float | None, challenger: float | None, group: int) -> None:
        if champion is not None and challenger is not None:
            self._add(name, champion - challenger, group)

    def _add_outcome(self, name: str, arm: Arm, loss: float, group: int) -> None:
        if name in self._comparisons:
            self._comparisons[name].add_outcome(arm, loss, group)

    def _decide(self) -> list[Action]:
        if (evidence := self.evidence) >= self.config.target:
            return self._take_back(f"{self._worst()}; evidence {evidence:.3g} over {self.config.target:g}")
        if self.seconds >= self.config.max_seconds:
            return self._give_up_waiting(evidence)
        if self._step_count < self._least_count or self._step_seconds < self.config.step_seconds:
            return []
        if obstacle := self._obstacle(evidence):
            note: list[Action] = [] if self._held else [Note(f"The challenger stays {self._place()}: {obstacle}.")]
            self._held = True
            return note
        return self._grow()

    @property
    def _least_count(self) -> int:
        return self.config.shadow_requests if self.stage == "shadow" else self.config.step_requests

    def _obstacle(self, evidence: float) -> str:
        """Return why the challenger does not go on although it had its requests and its time; empty if it may."""
        if evidence >= self.config.hold:
            return f"{self._worst()}; evidence {evidence:.3g}, and it must be below {self.config.hold:g}"
        if self.stage == "shadow":
            return ""
        return next((_lacking(each) for each in self._comparisons.values() if not each.enough), "")

    def _grow(self) -> list[Action]:
        step = 0 if self.stage == "shadow" else self._step + 1
        if step == len(self.config.steps) or self.config.steps[step] == 1.0:
            return self._promote(f"no worse than the champion; evidence against it {self.evidence:.2g}")
        note = Note(
            f"The challenger takes {self.config.steps[step]:.3g} of the traffic, after it stayed {self._place()}."
        )
        self.stage, self._step = "canary", step
        self._step_count, self._step_seconds, self._held = 0, 0.0, False
        return [SetShare(self.share), note]

    def _give_up_waiting(self, evidence: float) -> list[Action]:
        obstacle = self._obstacle(evidence) or "too few requests"
        undecided = f"undecided after {self.config.max_seconds:g} s: {obstacle}"
        if self.config.undecided == "promote" and evidence < self.config.hold:
            return self._promote(undecided)
        return self._take_back(undecided)

    def _promote(self, reason: str) -> list[Action]:
        self.reason = f"promoted {self._place()}: {reason}"
        self.stage = "promoted"
        return [SetShare(1.0), Promote(self.reason)]

    def _take_back(self, reason: str) -> list[Action]:
        self.reason = f"taken back {self._place()}: {reason}"
        self.stage = "taken_back"
        return [SetShare(0.0), TakeBack(self.reason)]

    def _place(self) -> str:
        if self.stage == "shadow":
            return f"in shadow after {self.copies:,} copies"
        return f"at {100 * self.share:.3g}% of traffic after {self.requests:,} requests"

    def _worst(self) -> str:
        """Return the figures of the measure with the most evidence against the challenger."""
        worst = max(self._comparisons, key=lambda name: self._weights[name] * self._comparisons[name].evidence.value)
        return self._comparisons[worst].sentence()

    def check(self) -> None:
        """Raise AssertionError if the state breaks an invariant."""
        assert 0 <= self._step < len(self.config.steps), "no such step"
        assert self.decided == bool(self.reason), "a decision without a reason, or a reason without a decision"
        assert self._step == 0 or self.stage != "shadow", "a step in shadow"
        assert self.requests == 0 or self.stage != "shadow", "requests answered in shadow"
        assert self.stage != "shadow" or self.config.shadow_requests, "a shadow that is not wanted"
        counted = self.copies if self.stage == "shadow" else max(self.requests, self.copies)
        assert 0 <= self._step_count <= counted, "more requests in a step than altogether"
        assert 0 <= self._step_seconds <= self.seconds * (1 + 1e-9) + 1e-6, "more time in a step than altogether"
        assert len(self._seen) <= REMEMBERED, "too many ids"
        assert self.decided or self.evidence < self.config.target, "evidence without a decision"
        for each in self._comparisons.values():
            each.check()

    def to_dict(self) -> dict[str, Any]:
        """Return the whole state, the configuration included, as plain JSON values, exactly."""
        return {
            "schema": SCHEMA,
            "config": self.config.to_dict(),
            "stage": self.stage,
            "reason": self.reason,
            "requests": self.requests,
            "copies": self.copies,
            "seconds": self.seconds,
            "step": self._step,
            "step_count": self._step_count,
            "step_seconds": self._step_seconds,
            "last": self._last,
            "held": self._held,
            "seen": list(self._seen),
            "tenants": self._groups.tenants,
            "references": {str(group): each.to_dict() for group, each in self._references.items()},
            "comparisons": {name: each.to_dict() for name, each in self._comparisons.items()},
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Rollout:
        """Return the rollout that `to_dict` was called on. Raises `InputError` for a state that it cannot have given."""
        if field(state, "schema") != SCHEMA:
            raise InputError("schema of a rollout", state["schema"], f"{SCHEMA}")
        rollout = cls(RolloutConfig.from_dict(table(state, "config")))
        rollout._restore(state)
        try:
            rollout.check()
        except AssertionError as error:
            raise InputError("stored rollout", "inconsistent", f"as it was written, but has {error}") from error
        return rollout

    def _restore(self, state: Mapping[str, Any]) -> None:
        self.stage = next((stage for stage in get_args(Stage) if stage == text(state, "stage")), "shadow")
        if self.stage != state["stage"]:
            raise InputError("stage", state["stage"], f"one of {', '.join(get_args(Stage))}")
        self.reason = text(state, "reason")
        self.requests, self.copies = count(state, "requests"), count(state, "copies")
        self._step, self._step_count = count(state, "step"), count(state, "step_count")
        self.seconds, self._step_seconds = (real(state, name, 0, 1e15) for name in ("seconds", "step_seconds"))
        self._last = None if field(state, "last") is None else real(state, "last", -math.inf, math.inf)
        self._held = bool(field(state, "held"))
        self._seen = {count({"id": digest}, "id"): None for digest in items(state, "seen", REMEMBERED)}
        self._groups = Groups(text({"tenant": each}, "tenant") for each in items(state, "tenants", MAX_TENANTS))
        references, quantile = table(state, "references"), self.config.late_quantile
        self._references = {
            group: Reference.from_dict(quantile, table(references, name))
            for name, group in group_numbers(references).items()
        }
        comparisons = table(state, "comparisons")
        for name, each in self._comparisons.items():
            each.restore(table(comparisons, name))


def _comparisons(config: RolloutConfig) -> dict[str, Comparison]:
    weights = config.weights
    return {
        measure.name: Comparison(measure, config.target / weights[measure.name], config.seeking, config.alpha)
        for measure in config.measures
    }


def _lacking(comparison: Comparison) -> str:
    measure, compared = comparison.measure, comparison.evidence.outcomes
    if compared < measure.required:
        return f"{measure.name} was compared {compared:,} times of {measure.required:,}"
    return f"{measure.name} is not yet proven to be less than {measure.prove:.2%} worse"
