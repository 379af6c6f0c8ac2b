"""What the loss of a node did, read off the journal and off what the clients got. Times on the driver's clock, seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pliant.benchmarks.results import Target
from pliant.protocol import Answer, Arrived, Drop, Failed, Finished, Journal, JournalEntry, Launch
from pliant.serving.answers import Completed, Rejected

NEVER = float("inf")
NOTICED = 2.0  # seconds within which the loss is to be known


@dataclass(frozen=True, slots=True)
class Reply:
    """What a client got for its payload."""

    payload: int
    got: Completed | Rejected


@dataclass(frozen=True, slots=True)
class Moments:
    lost: int  # worker
    killed: float
    added: float
    ended: float


@dataclass(frozen=True, slots=True)
class Story:
    """All that happened."""

    journal: Journal
    replies: Sequence[Reply]
    moments: Moments


@dataclass(frozen=True, slots=True)
class Loss:
    """Of a node. Requests are counted; times in seconds; rates in answers a second."""

    placement: str
    period: float  # between two plans
    accepted: int
    answered: int
    late: int  # of those answered
    refused: int
    refused_late: int  # after their deadline
    twice: int  # answered or refused more than once, or run to the end by two launches
    unanswered: int
    wrong: int  # got another one's output
    noticed: float  # from the kill until the scheduler heard of it
    replanned: float  # from then until a launch was decided that makes up for the lost device
    silence: float  # the longest time without any answer
    returned: float  # from when the new node was up until a launch had ended there
    rates: tuple[float, float, float]  # with all nodes, without one, again with all

    def targets(self) -> list[Target]:
        loss = f"node loss, {self.placement}:"
        return [
            Target(f"{loss} accepted requests neither answered nor refused", self.unanswered, "<=", 0),
            Target(f"{loss} requests answered or run twice", self.twice, "<=", 0),
            Target(f"{loss} requests with another one's answer", self.wrong, "<=", 0),
            Target(f"{loss} requests refused after their deadline", self.refused_late, "<=", 0),
            Target(f"{loss} noticed after", self.noticed, "<=", NOTICED, "s"),
            Target(f"{loss} then capacity planned anew after", self.replanned, "<=", self.period, "s"),
        ]


def loss(story: Story, placement: str, period: float) -> Loss:
    """Read a loss off what happened (see `Loss`)."""
    journal, replies, moments = story.journal, story.replies, story.moments
    requests = {entry.event.request.id: entry.event.request for entry in journal if isinstance(entry.event, Arrived)}
    acts = [(entry.now, action) for entry in journal for action in entry.actions]
    ends = Counter(action.request for _, action in acts if isinstance(action, Answer | Drop))
    finished = [entry.event for entry in journal if isinstance(entry.event, Finished)]
    runs = Counter(result.request for event in finished for result in event.results)
    answered = [(at, requests[action.request]) for at, action in acts if isinstance(action, Answer)]
    dropped = [(at, requests[action.request]) for at, action in acts if isinstance(action, Drop)]
    times = [at for at, _ in answered]
    noticed = _noticed(journal, moments)
    return Loss(
        placement=placement,
        period=period,
        accepted=len(requests),
        answered=len(answered),
        late=sum(at > request.deadline for at, request in answered),
        refused=len(dropped),
        refused_late=sum(at > request.deadline for at, request in dropped),
        twice=sum(ends[number] > 1 or runs[number] > 1 for number in requests),
        unanswered=sum(ends[number] == 0 for number in requests) + abs(len(requests) - len(replies)),
        wrong=_wrong(replies),
        noticed=noticed - moments.killed,
        replanned=_replanned(journal, noticed, moments.lost, placement) - noticed,
        silence=max((after - before for before, after in pairwise(times)), default=NEVER),
        returned=back_in_use(journal, moments) - moments.added,
        rates=_rates(times, moments),
    )


@dataclass(frozen=True, slots=True)
class HeadLoss:
    """Of the control process of a cluster's head, `away` seconds long. Requests and launches are counted."""

    away: float
    accepted: int
    answered: int
    refused: int
    unanswered: int
    wrong: int  # got another one's output
    failed: int  # launches, restarts included

    def targets(self) -> list[Target]:
        loss = f"head away for {self.away:g} s:"
        return [
            Target(f"{loss} requests not answered", self.accepted - self.answered + self.unanswered, "<=", 0),
            Target(f"{loss} requests with another one's answer", self.wrong, "<=", 0),
            Target(f"{loss} devices and services that had to be started again", self.failed, "<=", 0),
        ]


def head_loss(journal: Journal, replies: Sequence[Reply], away: float) -> HeadLoss:
    """Read off what happened while the head was away. A service that had ended would have left no journal."""
    accepted = sum(isinstance(entry.event, Arrived) for entry in journal)
    actions = [action for entry in journal for action in entry.actions]
    return HeadLoss(
        away=away,
        accepted=accepted,
        answered=sum(isinstance(action, Answer) for action in actions),
        refused=sum(isinstance(action, Drop) for action in actions),
        unanswered=abs(accepted - len(replies)),
        wrong=_wrong(replies),
        failed=sum(isinstance(entry.event, Failed) for entry in journal),
    )


def _wrong(replies: Sequence[Reply]) -> int:
    return sum(isinstance(reply.got, Completed) and reply.got.output[0] != reply.payload for reply in replies)


def _first(journal: Journal, after: float, holds: Callable[[JournalEntry], bool]) -> float:
    return next((entry.now for entry in journal if entry.now >= after and holds(entry)), NEVER)


def _noticed(journal: Journal, moments: Moments) -> float:
    """Return when a launch on the lost node failed."""
    there = {a.id for entry in journal for a in entry.actions if isinstance(a, Launch) and a.worker == moments.lost}
    return _first(journal, moments.killed, lambda e: isinstance(e.event, Failed) and e.event.launch in there)


def _replanned(journal: Journal, noticed: float, lost: int, placement: str) -> float:
    """Return when another device was sent for the lost one's runtime, or ran in it; where each has all, when any ran on."""
    launches = [(entry.now, a) for entry in journal for a in entry.actions if isinstance(a, Launch)]
    kinds = ("load", "run") if placement == "single" else ("run",)
    useful = [(at, launch) for at, launch in launches if launch.kind in kinds]
    held = [launch.setting for at, launch in useful if launch.worker == lost and at <= noticed][-1:]
    later = [(at, launch) for at, launch in useful if launch.worker != lost and at >= noticed]
    return next((at for at, launch in later if placement != "single" or launch.setting in held), NEVER)


def back_in_use(journal: Journal, moments: Moments) -> float:
    """Return when requests were first answered by the worker that had been lost; `NEVER`: not yet."""
    launches = (a for entry in journal if entry.now >= moments.killed for a in entry.actions if isinstance(a, Launch))
    there = {launch.id for launch in launches if launch.worker == moments.lost and launch.kind == "run"}
    return _first(journal, moments.added, lambda e: isinstance(e.event, Finished) and e.event.launch in there)


def _rates(times: Sequence[float], moments: Moments) -> tuple[float, float, float]:
    spans = ((0.0, moments.killed), (moments.killed, moments.added), (moments.added, moments.ended))
    whole, short, again = (sum(start <= at < end for at in times) / (end - start) for start, end in spans)
    return whole, short, again
