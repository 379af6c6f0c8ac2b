"""What became of requests is counted from what their clients saw, and from what the service counted."""

from __future__ import annotations

import math

from prometheus_client import CollectorRegistry, generate_latest

from benchmarks.tokens.watch.ground import (
    GIVE_UP,
    Answer,
    Counts,
    Fates,
    counts_of,
    fates,
    first_from,
    no_counts,
    p99,
    scraped,
    version_of,
)
from pliant.protocol import Arrived, JournalEntry, Request
from serving.answers import Completed, Rejected
from serving.arms import to_champion_as_copy
from serving.metrics import Metrics
from serving.tokens.endpoint import ORIGINS


def answer(id: str, status: int = 200, said: str | None = None, ended: float = 1.0, version: int = 1) -> Answer:
    return Answer(id, id if said is None else said, "digit", 0.0, ended, status, version)


def test_each_request_has_exactly_one_answer_of_its_own():
    assert fates(2, [answer("a"), answer("b")]) == Fates(2, 0, 0)
    assert fates(3, [answer("a"), answer("b", status=503)]) == Fates(3, 2, 0)
    assert fates(2, [answer("a"), answer("b", said="c")]) == Fates(2, 0, 1)


def service(*answers: tuple[str, int], late: int = 0) -> Counts:
    """What a service that gave these answers, by task and version, says in its metrics, read back."""
    registry = CollectorRegistry()
    metrics = Metrics("gamma", ORIGINS, registry)
    for number, (task, version) in enumerate(answers):
        metrics.observe(JournalEntry(0.0, Arrived(Request(number, 0.0, 1.0, task)), ()))
        metrics.answered(task, Completed(0, 0, 1, 0.0, 0.0, 1.0 if number < late else -1.0))
        metrics.originated(task, {"task_version": version})
    metrics.answered("digit", Rejected("late"))
    with to_champion_as_copy():
        metrics.answered("digit", Completed(0, 0, 1, 0.0, 0.0, -1.0))
        metrics.originated("digit", {"task_version": 1})
    return scraped(generate_latest(registry).decode())


CLIENTS = counts_of([answer("a"), answer("b", version=2), answer("c", status=503), answer("d", status=0, version=0)])


def test_a_service_counts_what_its_clients_got_and_no_copies():
    counted = service(("digit", 1), ("digit", 2), late=1)
    assert (counted.answered_again(CLIENTS), counted.not_counted(CLIENTS)) == (0, 0)
    assert counted.arrivals.total() == 2


def test_a_planted_duplicate_is_noticed():
    counted = service(("digit", 1), ("digit", 2), ("digit", 2))
    assert (counted.answered_again(CLIENTS), counted.not_counted(CLIENTS)) == (1, 0)


def test_an_answer_given_twice_is_not_made_up_for_by_a_lost_answer_of_another_version():
    counted = service(("digit", 2), ("digit", 2))
    assert (counted.answered_again(CLIENTS), counted.not_counted(CLIENTS)) == (1, 1)


def test_counts_that_show_nothing_do_not_pass():
    assert no_counts().not_counted(CLIENTS) == 2


def test_what_was_counted_before_is_taken_off():
    before, after = service(("digit", 1)), service(("digit", 1), ("digit", 2), ("animal", 2))
    assert after.since(before) == service(("digit", 2), ("animal", 2)) == service(("digit", 2)) + service(("animal", 2))


def test_the_first_answer_of_a_release_after_a_moment_counts():
    answers = [answer("a", ended=1.0), answer("b", ended=3.0, version=2), answer("c", ended=2.5, version=2)]
    assert first_from(answers, 2.0, {"digit": 2}) == 0.5
    assert math.isnan(first_from(answers, 2.0, {"digit": 3}))
    assert math.isnan(first_from([answer("a", status=0, version=0)], 0.0, {"digit": 0}))


def test_a_lost_request_counts_as_long_as_its_client_waited():
    assert p99([answer("a", ended=0.25)]) == 0.25
    assert p99([answer(str(n), ended=0.25) for n in range(10)] + [answer("lost", status=0)]) > 0.9 * GIVE_UP
    assert math.isnan(p99([]))


def test_the_version_is_that_of_the_tasks_model():
    assert version_of({"versions": {"task": 3, "backbone": 1}}, "digit") == 3
    assert version_of({}, "digit") == 0
