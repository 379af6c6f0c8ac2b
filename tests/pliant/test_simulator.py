"""The simulator's clock, replays, and the figures of a journal."""

from __future__ import annotations

import pytest

from pliant.errors import SchedulerError
from pliant.protocol import (
    Answer,
    Arrived,
    Cancelled,
    Drop,
    Failed,
    Finished,
    JournalEntry,
    Launch,
    Request,
    Restarted,
    Result,
    Woke,
    replay,
)
from pliant.report import Observation, observations, summarise
from pliant.simulator import simulate


class Single:
    """One worker, one request a launch, first come first served; drops at the deadline."""

    def __init__(self, restless: bool = False) -> None:
        self.waiting, self.running, self.launches, self.restless = [], None, 0, restless

    def handle(self, event, now):
        actions = []
        match event:
            case Arrived(request):
                self.waiting.append(request)
            case Finished(launch):
                actions.append(Answer(self.running.id, launch))
                self.running = None
            case Failed():
                actions.append(Drop(self.running.id, "failed"))
                self.running = None
        actions += [Drop(r.id, "late") for r in self.waiting if r.deadline <= now]
        self.waiting = [r for r in self.waiting if r.deadline > now]
        if self.waiting and self.running is None:
            self.running = self.waiting.pop(0)
            actions.append(Launch(self.launches, 0, (self.running.id,)))
            self.launches += 1
        return actions

    def wake_at(self):
        return 0.0 if self.restless else min((r.deadline for r in self.waiting), default=None)

    def check(self):
        assert not (self.waiting and self.running is None)


def takes(seconds: float):
    return lambda launch: (seconds, Finished(launch.id, seconds))


def ask(id: int, at: float, deadline: float = 100.0) -> Request:
    return Request(id, at, deadline, "a")


def story(journal):
    return [(entry.now, type(entry.event).__name__, [type(a).__name__ for a in entry.actions]) for entry in journal]


def test_events_come_in_order_of_time_with_what_they_caused():
    assert story(simulate(Single(), [ask(1, 1.0), ask(0, 0.5)], takes(2.0))) == [
        (0.5, "Arrived", ["Launch"]),
        (1.0, "Arrived", []),
        (2.5, "Finished", ["Answer", "Launch"]),
        (4.5, "Finished", ["Answer"]),
    ]


def test_a_scheduler_is_woken_when_it_asked_and_not_when_something_comes_first():
    journal = simulate(Single(), [ask(0, 0.0), ask(1, 0.0, deadline=1.0)], takes(5.0))
    assert (1.0, "Woke", ["Drop"]) in story(journal)
    journal = simulate(Single(), [ask(0, 0.0), ask(1, 0.0, deadline=1.0)], takes(0.5))
    assert not any(isinstance(entry.event, Woke) for entry in journal)


def test_a_scheduler_that_is_never_content_is_refused_instead_of_spinning():
    with pytest.raises(SchedulerError, match=r"after Woke at 0.0 the scheduler asks to be woken at 0.0"):
        simulate(Single(restless=True), [ask(0, 5.0)], takes(1.0))


class Leaving(Single):
    """Forgets who has left."""

    def __init__(self) -> None:
        super().__init__()
        self.left = []

    def handle(self, event, now):
        if isinstance(event, Cancelled):
            self.left.append((event.request, now))
            self.waiting = [request for request in self.waiting if request.id != event.request]
            return []
        return super().handle(event, now)


def test_a_client_leaves_after_all_else_of_its_instant_and_only_where_it_still_waits():
    scheduler = Leaving()
    leaving = [(0.0, 7), (1.0, 1), (1.0, 1), (2.0, 0), (3.0, 5), (9.0, 2), (9.0, 42)]
    asked = [ask(0, 0.0), ask(1, 1.0), ask(2, 1.0), ask(3, 1.0, deadline=1.5), ask(5, 3.0)]
    journal = simulate(scheduler, asked, takes(2.0), leaving=leaving)
    assert scheduler.left == [(1, 1.0), (5, 3.0)], "0 had its answer at that moment, 2 before, 7 and 42 never came"
    assert story(journal)[-2:] == [(3.0, "Cancelled", []), (4.0, "Finished", ["Answer"])]
    assert (1.5, "Woke", ["Drop"]) in story(journal)


class Counting:
    """Drops a request whose number is how many events it was given before."""

    def __init__(self, events: int = 0) -> None:
        self.events = events

    def handle(self, event, now):
        self.events += 1
        return [Drop(self.events - 1, f"{type(event).__name__} at {now}")]

    def wake_at(self):
        return None

    def check(self): ...


def entry(now, event, *actions):
    return JournalEntry(now, event, actions)


def test_after_each_restart_a_scheduler_begins_anew_and_what_the_driver_did_meanwhile_stays():
    taken = Drop(7, "failed")
    journal = [entry(1.0, Woke()), entry(2.0, Woke()), entry(3.0, Restarted("bug"), taken), entry(4.0, Woke())]
    journal += [entry(5.0, Woke()), entry(6.0, Restarted("again")), entry(7.0, Woke())]
    replayed = replay(Counting(10), iter(journal))
    assert [[action.request for action in each.actions] for each in replayed] == [[10], [11], [7], [10], [11], [], [10]]
    assert replayed[2] == journal[2]


def requested(id: int, at: float, deadline: float, utility: float = 1.0) -> Request:
    return Request(id, at, deadline, "a", utility)


ASKED = [requested(0, 0.0, 2.0, 0.5), requested(1, 0.0, 2.0, 0.25)]


def test_an_answer_of_an_earlier_launch_is_as_correct_as_that_one_was():
    """Once an answer of a cascade that was cut short had no result of its own, and so earned nothing."""
    request = requested(0, 0.0, 9.0)
    journal = [
        JournalEntry(0.0, Arrived(request), (Launch(0, 0, (0,), 0),)),
        JournalEntry(1.0, Finished(0, 1.0, (Result(0, True, gain=0.5, length=8),)), (Launch(1, 0, (0,), 1),)),
        JournalEntry(2.0, Failed(1, "gone"), (Answer(0, 0, "failed"),)),
    ]
    assert [(o.outcome, o.setting) for o in observations(journal)] == [("accurate", 0)]


def test_all_figures_of_a_load_whose_requests_fared_in_every_way():
    requests = [requested(i, float(i), i + 2.0, utility=2.0**i) for i in range(7)]
    observed = [
        Observation(requests[0], answered=1.0, correct=True, setting=3, batch=2),
        Observation(requests[1], answered=2.5, correct=False, setting=3, batch=2),
        Observation(requests[2], answered=5.0, correct=True, setting=0, batch=1),
        Observation(requests[3], dropped="late"),
        Observation(requests[4], cancelled=True, dropped="full"),
        Observation(requests[5], answered=5.5, setting=0),
        Observation(requests[6]),
    ]
    figures = summarise(iter(observed))
    outcomes = ["accurate", "wrong", "late", "evicted", "cancelled", "unlabelled", "waiting"]
    assert [each.outcome for each in observed] == outcomes
    assert (figures.requests, figures.offered, figures.utility) == (7, 127.0, 1.0)
    assert (figures.outcomes, figures.drops) == (dict.fromkeys(outcomes, 1), {"full": 1, "late": 1})
    assert list(figures.outcomes) == sorted(outcomes)
    assert figures.attainment == 3 / 6
    assert figures.accuracy == pytest.approx(2 / 3)
    assert figures.goodput == pytest.approx(1 / 6), "the last one came at 6 s"
    assert (figures.p50, figures.p98) == pytest.approx((1.25, 1.5 + 0.94 * 1.5))
    assert (figures.settings, list(figures.settings)) == ({0: 2, 3: 2}, [0, 3])
    assert figures.batch == pytest.approx(5 / 3)


def test_a_client_that_left_is_observed_as_gone():
    journal = [
        JournalEntry(0.0, Arrived(ASKED[0]), (Launch(0, 0, (0,), 4),)),
        JournalEntry(0.5, Arrived(ASKED[1]), (Launch(1, 1, (1,), 4),)),
        JournalEntry(1.0, Cancelled(0), ()),
        JournalEntry(2.0, Finished(1, 1.0, (Result(1),)), (Answer(1, 1),)),
    ]
    gone, stays = observations(iter(journal))
    assert gone == Observation(ASKED[0], cancelled=True)
    assert stays == Observation(ASKED[1], 2.0, None, 4, 1)
