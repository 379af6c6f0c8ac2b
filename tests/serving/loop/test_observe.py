"""What an observation counts for, and what a trial makes of those of two answers."""

from __future__ import annotations

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from pliant.outcomes.tracker import Answered
from pliant.serving.loop.observe import MAX_STREAMS, DriftCounter, Observer, Served, agree
from pliant.serving.loop.outcomes import Outcomes
from pliant.serving.metrics import Metrics
from pliant.serving.request_context import EVIDENCE, holding, to_challenger, to_champion_as_copy
from tests.fixtures.observed import observed, tossed

KIND = Answered("mails", 1, "default", "small", "", 0.0, 0.9, classes=("no", "yes"))


class World:
    """An observer with all that it passes observations on to."""

    def __init__(self) -> None:
        self.counted, self.drift = CollectorRegistry(), DriftCounter()
        self.outcomes = Outcomes(self.counted)
        self.observer = Observer(Metrics("bin", ("version",), self.counted), self.drift, self.outcomes)

    def answer(self, id: str = "a", label: str = "yes") -> None:
        origin = {"version": 7, "more": "is not counted by"}
        one = observed(label, id=id, kind=KIND, origin=origin, readings=tossed(label == "yes"))
        self.observer.observe(one, lambda: ("json", b"words"))

    def answers(self) -> float | None:
        return self.counted.get_sample_value("pliant_answers_total", {"task": "mails", "version": "7"})


def test_an_answer_is_counted_watched_and_remembered_once():
    world = World()
    world.answer()
    world.answer("b", "no")
    assert world.answers() == 2 and world.drift.take() == {-1: {"coin": [1, 1]}} and world.drift.take() == {}
    assert [world.outcomes.take(id, "yes")["correct"] for id in "ab"] == [True, False]


def test_of_a_copy_nothing_is_counted_and_of_a_challengers_answer_all_but_drift():
    world = World()
    with to_champion_as_copy():
        world.answer()
        assert not world.drift.should_count()
    with to_challenger(copy=True):
        world.answer()
    assert world.answers() is None and world.drift.take() == {} and world.drift.streams == {}
    with to_challenger():
        world.answer("c")
    assert world.answers() == 1 and world.drift.take() == {} and world.outcomes.take("c", "yes")["correct"]


def test_what_answers_share_is_made_once():
    made = []
    kinds = [World().observer.kind(key, lambda: made.append(1) or KIND) for key in "aba"]
    assert kinds == [KIND] * 3
    observer = World().observer
    assert [observer.kind(key, lambda: made.append(2) or KIND) for key in "aab"] == [KIND] * 3
    assert made.count(2) == 2


def test_drift_counts_by_group_of_tenants_and_only_so_many_streams():
    drift = DriftCounter()
    for number in range(MAX_STREAMS + 5):
        drift.count(tossed(0, f"coin {number}"))
    assert len(drift.streams) == len(drift.take()[-1]) == MAX_STREAMS
    with holding(EVIDENCE, "acme"):
        drift.count(tossed(7, "coin 0") + tossed(1, "coin 0"))
    assert drift.take() == {0: {"coin 0": [0, 1]}}, "a class that is not known is none"
    drift.counting = False
    drift.count(tossed(0, "coin 0"))
    assert not drift.should_count() and drift.take() == {}


def served(*observations) -> Served:
    return Served(None, observations)


EAST, NORTH_EAST, NORTH = np.array([1.0, 0.0]), np.array([1.0, 0.1]), np.array([0.0, 1.0])


@pytest.mark.parametrize(
    ("champion", "challenger", "same"),
    [
        ("yes", "yes", True),
        ("yes", "no", False),
        ((1, 2), (1, 2), True),
        ((1, 2), (1, 3), False),
        (None, None, None),  # drawn at random
        (0.5, 0.5, None),  # a regression
        ("yes", EAST, None),
        (EAST, NORTH_EAST, True),
        (EAST, NORTH, False),
        (EAST, np.array([1.0]), None),
    ],
)
def test_two_answers_agree_where_all_of_their_parts_do(champion, challenger, same):
    assert agree(served(observed(champion)), served(observed(challenger))) is same
    assert agree(served(observed("x"), observed(champion)), served(observed("x"), observed(challenger))) is same
    assert agree(served(observed(champion)), served(None)) is None


def test_a_request_is_late_if_one_of_its_parts_is():
    assert served(observed(), None, observed(late=True), observed()).late is True
    assert served(observed(late=None), None).late is None
