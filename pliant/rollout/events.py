"""What a rollout hears of, and what it wants done. Latencies are in seconds.

`tenant`: whose evidence an outcome is, as far as that is capped; "" where it is not (pliant/fairness.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pliant.errors import InputError
from pliant.rollout.measures import ARMS, Arm


@dataclass(frozen=True, slots=True)
class ShadowCompared:
    """Both releases have answered a request: one of them its client, the other a copy.

    `agree`: the answers are the same; None: it cannot be said.
    """

    id: str
    agree: bool | None = None
    tenant: str = ""


@dataclass(frozen=True, slots=True)
class CanaryOutcome:
    """A client's request has been answered by one arm, or has failed (`error`), while a canary runs.

    `latency` is None where it was not measured. `late` says whether a deadline was missed; None: the latency decides.
    `fair`: whether it says anything of the arm. It does not where the client could know which arm would answer, or where
    none could have kept what the client left of its deadline.
    """

    id: str
    arm: Arm
    latency: float | None = None
    error: bool = False
    late: bool | None = None
    tenant: str = ""
    fair: bool = True


@dataclass(frozen=True, slots=True)
class Label:
    """The label of a request that both releases have answered: which was right.

    `seen`: whose answer the client had. `slices`: names of what the request belongs to, such as its class, on each of which
    the challenger may not be much worse.
    """

    id: str
    champion: bool
    challenger: bool
    seen: Arm = "champion"
    slices: tuple[str, ...] = ()
    tenant: str = ""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Broken:
    """The challenger cannot go on: its process died, its artifact is damaged."""

    reason: str


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Somebody ends the rollout by hand; the challenger is taken back."""

    reason: str = ""


Event = ShadowCompared | CanaryOutcome | Label | Tick | Broken | Cancelled


@dataclass(frozen=True, slots=True)
class SetShare:
    """From now on the challenger answers this share of the requests: whose `config.position` is below it."""

    share: float


@dataclass(frozen=True, slots=True)
class TakeBack:
    """The champion stays and the challenger is given up."""

    reason: str


@dataclass(frozen=True, slots=True)
class Promote:
    """The challenger is the champion from now on."""

    reason: str


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence for the log and the release's page."""

    sentence: str


@dataclass(frozen=True, slots=True)
class Ask:
    """Nothing proves that the challenger is not worse, so that it takes no more requests: a person may decide."""

    sentence: str


Action = SetShare | TakeBack | Promote | Note | Ask


def check_event(event: Event) -> None:
    """Raise `InputError` for an event whose figures are outside of their limits."""
    arm = event.arm if isinstance(event, CanaryOutcome) else event.seen if isinstance(event, Label) else ARMS[0]
    if arm not in ARMS:
        raise InputError("arm", arm, f"one of {', '.join(ARMS)}")
    if isinstance(event, CanaryOutcome) and event.latency is not None and not 0 <= event.latency < math.inf:
        raise InputError("latency", event.latency, "at least 0 seconds, and finite")
