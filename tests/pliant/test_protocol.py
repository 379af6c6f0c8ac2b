"""A replay feeds a journal to a scheduler that knows nothing yet, and to another such one after each restart."""

from __future__ import annotations

from pliant.protocol import (
    Cancelled,
    Drop,
    JournalEntry,
    Restarted,
    Woke,
    replay,
)


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


def test_events_are_handed_on_at_their_times_and_decided_anew():
    journal = [entry(1.0, Woke(), Drop(9, "of another scheduler")), entry(2.0, Cancelled(3))]
    scheduler = Counting()
    assert replay(scheduler, journal) == [
        entry(1.0, Woke(), Drop(0, "Woke at 1.0")),
        entry(2.0, Cancelled(3), Drop(1, "Cancelled at 2.0")),
    ]
    assert scheduler.events == 2, "the scheduler itself was asked"


def test_after_each_restart_a_scheduler_begins_anew_and_what_the_driver_did_meanwhile_stays():
    taken = Drop(7, "failed")
    journal = [entry(1.0, Woke()), entry(2.0, Woke()), entry(3.0, Restarted("bug"), taken), entry(4.0, Woke())]
    journal += [entry(5.0, Woke()), entry(6.0, Restarted("again")), entry(7.0, Woke())]
    replayed = replay(Counting(10), iter(journal))
    assert [[action.request for action in each.actions] for each in replayed] == [[10], [11], [7], [10], [11], [], [10]]
    assert replayed[2] == journal[2]
