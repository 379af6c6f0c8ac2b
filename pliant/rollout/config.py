"""How a challenger is tried: the shares it takes, how long, and what decides. All figures are fixed for one rollout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, Literal, get_args

from pliant.errors import InputError
from pliant.rollout.measures import MIXED, Measure, plain
from pliant.rollout.state import count, items, numbers, real, text

Undecided = Literal["take back", "promote"]
MAX_STEPS, MAX_MEASURES = 50, 20


@dataclass(frozen=True, slots=True)
class RolloutConfig:
    """The limits of one rollout. Shares are of all requests, times in seconds.

    The challenger first gets copies of `shadow_share` of the requests until `shadow_requests` copies are compared (0: no
    shadow). Then it answers the share `steps[0]`, and so on; with the last step it is promoted, at once if that is all.
    A step takes at least `step_requests` of the canary's requests and `step_seconds`.

    `alpha` bounds the probability that a challenger that is no worse, by every measure's margin, is ever taken back on
    the evidence. With evidence of at least `hold` against it, it stays at its share. After `max_seconds` it counts as
    `undecided`. `horizon`: the comparisons within which a difference shall show; the default is `shadow_requests` + 500.
    `gap`: more time than this between two events counts as this much, so that a pause or a wrong clock decides nothing.
    """

    shadow_share: float = 0.1
    shadow_requests: int = 500
    steps: tuple[float, ...] = (0.01, 0.05, 0.2, 0.5, 1.0)
    step_requests: int = 150
    step_seconds: float = 300.0
    measures: tuple[Measure, ...] = MIXED
    alpha: float = 0.05
    hold: float = 3.0
    max_seconds: float = 86_400.0
    undecided: Undecided = "take back"
    late_quantile: float = 0.95
    horizon: int | None = None
    gap: float = 3600.0

    @property
    def target(self) -> float:
        """The evidence, of all measures together, that takes a challenger back."""
        return 1 / self.alpha

    @property
    def weights(self) -> dict[str, float]:
        """Each measure's part of alpha; together 1."""
        total = sum(measure.weight for measure in self.measures)
        return {measure.name: measure.weight / total for measure in self.measures}

    @property
    def seeking(self) -> int:
        """The comparisons within which a difference shall show."""
        return self.shadow_requests + 500 if self.horizon is None else self.horizon

    def check(self) -> None:
        """Raise `InputError` for a configuration that cannot be carried out."""
        for measure in self.measures:
            measure.check()
        names = [measure.name for measure in self.measures]
        limits = (
            ("shadow_share", self.shadow_share, 0 <= self.shadow_share <= 1, "from 0 to 1"),
            ("steps", self.steps, _rising((0.0, *self.steps, 1.0 + 1e-9)), "rising shares above 0, up to 1"),
            ("steps", self.steps, 1 <= len(self.steps) <= MAX_STEPS, f"1 to {MAX_STEPS} shares"),
            ("measures", names, 1 <= len(set(names)) == len(names) <= MAX_MEASURES, "some, each of them once"),
            ("alpha", self.alpha, 0.001 <= self.alpha <= 0.5, "from 0.001 to 0.5"),
            ("hold", self.hold, self.hold > 1 and self.hold * self.alpha <= 1, "above 1 and at most 1 / alpha"),
            ("late_quantile", self.late_quantile, 0 < self.late_quantile < 1, "between 0 and 1"),
            ("undecided", self.undecided, self.undecided in get_args(Undecided), "take back or promote"),
        )
        for name, value, fits, limit in limits:
            if not fits:
                raise InputError(name, value, limit)
        self._check_sizes()

    def _check_sizes(self) -> None:
        if self.shadow_requests and not self.shadow_share:
            raise InputError("shadow_share", 0, "above 0 where copies are to be compared")
        for name in ("shadow_requests", "step_requests", "step_seconds", "max_seconds", "gap", "seeking"):
            if not 0 <= getattr(self, name) < 1e9:
                raise InputError(name, getattr(self, name), "at least 0, and finite")
        if not self.max_seconds or not self.gap or not self.step_requests:
            raise InputError("max_seconds, gap and step_requests", 0, "above 0")

    def to_dict(self) -> dict[str, Any]:
        """Return the configuration as plain JSON values."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return values | {"steps": list(self.steps), "measures": plain(self.measures)}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> RolloutConfig:
        """Return the configuration that `to_dict` was called on. Raises `InputError` for a damaged state."""
        if isinstance(state, Mapping) and set(state) != {each.name for each in fields(cls)}:
            raise InputError("config of a rollout", sorted(state), "the fields of this version")
        steps = tuple(numbers(state, "steps", len(items(state, "steps", MAX_STEPS)), 0, 1))
        if (undecided := text(state, "undecided")) not in get_args(Undecided):
            raise InputError("undecided", undecided, "take back or promote")
        config = cls(
            shadow_requests=count(state, "shadow_requests"),
            step_requests=count(state, "step_requests"),
            steps=steps,
            measures=tuple(Measure.from_dict(each) for each in items(state, "measures", MAX_MEASURES)),
            undecided="promote" if undecided == "promote" else "take back",
            horizon=None if state["horizon"] is None else count(state, "horizon"),
            **{name: real(state, name, 0, 1e9) for name in _REALS},
        )
        config.check()
        return config


_REALS = ("shadow_share", "step_seconds", "alpha", "hold", "max_seconds", "late_quantile", "gap")


def _rising(values: tuple[float, ...]) -> bool:
    return all(first < second for first, second in pairwise(values))
