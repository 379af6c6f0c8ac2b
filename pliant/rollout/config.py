"""How a challenger is tried: the shares it takes, how long, and what decides. All figures are fixed for one rollout.

Who is served by the canary follows from a hash of the request's key, so that a client stays with the release that it has.
Keys have fixed positions in [0, 1), and the canary serves those below its share: a share that grows only adds keys. The
position depends on a secret of the trial as well (`salt`): nobody can choose a key by the release that he wants, and not
always the same clients try what is new. It is the same in every process and under every version of Python.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise

from pliant.errors import InputError
from pliant.rollout.measures import MEASURES, Measure

ALPHA = 0.05
"""The probability that a challenger that is no worse, by every measure's margin, is ever taken back on the evidence."""
FLOORS = 0.2  # weight of the evidence of all slices, beside those of the measures
UNPROVEN = 0.05
"""The share beyond which a challenger grows only with proof that its answers are not much worse, or its first share."""
HOLD = 3.0  # evidence against the challenger with which it stays at its share
HELD_BACK = 0.05  # share of the requests that the former champion answers in the guard
INSTALMENTS = 1440  # in which the evidence of the guard is paid in, so that what begins late is noticed as soon
SOON = 500  # comparisons besides those of shadow within which a difference shall show
BITS = 53  # that a float holds exactly


@dataclass(frozen=True, slots=True)
class RolloutConfig:
    """The limits of one rollout. Shares are of all requests, times in seconds.

    The challenger first gets copies of `shadow_share` of the requests until `shadow_requests` copies are compared (0: no
    shadow). Then it answers the share `steps[0]`, and so on. A step takes at least `step_requests` of the canary's requests
    and `step_seconds`. Before the last step, which is the promotion, it takes turns with the champion at all requests, if
    `load` is a measure (turns.py). For `guard_seconds` after it the former champion is compared with it. A challenger that
    is undecided after `max_seconds` is taken back. Raises `InputError` for a configuration that cannot be carried out.
    """

    shadow_share: float = 0.1
    shadow_requests: int = 500
    steps: tuple[float, ...] = (0.01, 0.05, 0.2, 0.5, 1.0)
    step_requests: int = 150
    step_seconds: float = 300.0
    measures: tuple[Measure, ...] = MEASURES
    max_seconds: float = 86_400.0
    guard_seconds: float = 86_400.0

    @property
    def weights(self) -> dict[str, float]:
        """Each measure's part of alpha; with `FLOORS`, that of the slices, over the same sum, together 1."""
        total = FLOORS + sum(measure.weight for measure in self.measures)
        return {measure.name: measure.weight / total for measure in self.measures}

    def __post_init__(self) -> None:
        names = [measure.name for measure in self.measures]
        rising = all(first < second for first, second in pairwise((0.0, *self.steps, 1.0 + 1e-9)))
        shadow = 0 < self.shadow_share <= 1 or self.shadow_share == self.shadow_requests == 0
        limits = (
            ("shadow_share", self.shadow_share, shadow, "from 0 to 1, and above 0 where copies are to be compared"),
            ("shadow_requests", self.shadow_requests, 0 <= self.shadow_requests < 1e9, "at least 0, and finite"),
            ("steps", self.steps, rising and self.steps, "rising shares above 0, up to 1"),
            ("step_requests", self.step_requests, 0 < self.step_requests < 1e9, "above 0, and finite"),
            ("step_seconds", self.step_seconds, 0 <= self.step_seconds < 1e9, "at least 0, and finite"),
            ("measures", names, 1 <= len(set(names)) == len(names), "some, each of them once"),
            ("max_seconds", self.max_seconds, 0 < self.max_seconds < 1e9, "above 0, and finite"),
            ("guard_seconds", self.guard_seconds, 0 <= self.guard_seconds < 1e9, "at least 0, and finite"),
        )
        for name, value, fits, limit in limits:
            if not fits:
                raise InputError(name, value, limit)


def position(salt: str, key: str, purpose: str = "canary") -> float:
    """Return the position of a key in [0, 1) under the secret `salt`; positions for two purposes are independent.

    A request without a key needs one from the caller, such as its number. `purpose` has at most 16 bytes.
    """
    content = salt.encode("utf-8", "surrogatepass")
    content = len(content).to_bytes(8, "big") + content + key.encode("utf-8", "surrogatepass")
    digest = blake2b(content, digest_size=8, person=purpose.encode()).digest()
    return int(int.from_bytes(digest, "big") >> (64 - BITS)) / float(1 << BITS)
