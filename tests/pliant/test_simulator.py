"""The simulator's clock: order of events, wake-ups, and an error for a scheduler that never sleeps."""

from __future__ import annotations

import pytest

from pliant.errors import SchedulerError
from pliant.protocol import Answer, Arrived, Cancelled, Drop, Failed, Finished, Launch, Request, Woke
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


def test_at_one_instant_ends_come_before_arrivals_and_arrivals_in_the_order_given():
    journal = simulate(Single(), [ask(0, 0.0), ask(7, 2.0), ask(3, 2.0)], takes(2.0))
    assert [type(entry.event).__name__ for entry in journal if entry.now == 2.0] == ["Finished", "Arrived", "Arrived"]
    assert [entry.event.request.id for entry in journal if isinstance(entry.event, Arrived)] == [0, 7, 3]


def test_a_scheduler_is_woken_when_it_asked_and_not_when_something_comes_first():
    journal = simulate(Single(), [ask(0, 0.0), ask(1, 0.0, deadline=1.0)], takes(5.0))
    assert (1.0, "Woke", ["Drop"]) in story(journal)
    journal = simulate(Single(), [ask(0, 0.0), ask(1, 0.0, deadline=1.0)], takes(0.5))
    assert not any(isinstance(entry.event, Woke) for entry in journal)


def test_a_scheduler_that_is_never_content_is_refused_instead_of_spinning():
    with pytest.raises(SchedulerError, match=r"after Woke at 0.0 the scheduler asks to be woken at 0.0"):
        simulate(Single(restless=True), [ask(0, 5.0)], takes(1.0))


def test_a_failed_launch_reaches_the_scheduler():
    journal = simulate(Single(), [ask(0, 0.0)], lambda launch: (0.25, Failed(launch.id, "crash")))
    assert journal[-1].now == 0.25
    assert journal[-1].actions == (Drop(0, "failed"),)


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
