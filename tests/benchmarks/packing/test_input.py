"""What counts as a good refusal of bad input in OpenAI's shape, how a soak is judged, and both against a real service."""

from __future__ import annotations

import pytest

from benchmarks.packing.input import Case, InputResult, answered, cases, measure, overloaded, refused
from benchmarks.packing.soak import GONE, KINDS, Books, Ended, Soaked
from flows.settings import Settings
from tests.fixtures.packing.published import MlflowPublisher, publish_tiny

ERROR = {"error": {"message": "n is 0", "type": "invalid_request_error", "param": "n", "code": "invalid_value"}}
LATE = {"error": {"message": "too late", "type": "server_error", "param": "deadline", "code": "late"}}
BALANCED = Books(0, 0, "balanced")


@pytest.mark.parametrize(
    ("status", "said", "well"),
    [
        (400, ERROR, True),
        (200, ERROR, False),
        (500, ERROR, False),
        (429, ERROR, False),
        (400, None, False),
        (400, {"error": "n is 0"}, False),
        (400, {"error": {"message": "n is 0", "param": "n"}}, False),
    ],
)
def test_a_refusal_is_a_4xx_in_openais_shape(status, said, well):
    assert refused("n")(status, said) is well


def test_a_refusal_names_the_field_and_the_code():
    assert refused("n", "invalid_value")(400, ERROR) and refused(None)(400, ERROR)
    assert not refused("seed")(400, ERROR)
    assert not refused("n", "other")(400, ERROR)


def test_too_late_is_overload_and_a_good_answer_has_choices():
    assert overloaded(503, LATE) and not overloaded(503, ERROR) and not overloaded(400, LATE)
    assert answered(200, {"choices": [{}]}) and not answered(200, {"choices": []}) and not answered(500, {})


def test_there_are_many_cases_each_named_once_and_a_good_one_at_the_end():
    found = cases("tales", 256)
    names = [one.name for one in found]
    assert len(found) >= 30 and len(set(names)) == len(names)
    assert found[-1].judge is answered


def test_the_soak_is_of_all_kinds_and_every_one_has_an_end_to_come_to():
    assert sum(kind.share for kind in KINDS) == pytest.approx(1)
    assert {GONE, 200, 400, 404} <= {status for kind in KINDS for status in kind.well}


@pytest.mark.parametrize(
    ("books", "statuses", "met"),
    [
        (BALANCED, [200] * 2000, True),
        (BALANCED, [200] * 1999, False),
        (BALANCED, [200] * 1999 + [500], False),
        (Books(0, 1, "balanced"), [200] * 2000, False),
        (Books(0, 0, "sequence 3: 1 pages in the books, 2 in the cache"), [200] * 2000, False),
    ],
)
def test_the_bars_want_every_request_well_and_no_page_lost(books, statuses, met):
    ended = [Ended("short", status, status == 200) for status in statuses]
    found = InputResult([Case("a", 400, "x", True)], {}, Soaked(ended, books, 1.0))
    assert all(bar.met for bar in found.targets()) is met
    assert found.plain()["soak"]["kinds"][0]["requests"] == str(len(statuses))


@pytest.mark.slow
def test_a_real_service_bears_bad_input_and_a_short_soak(tmp_path):
    publish_tiny(MlflowPublisher(tmp_path))
    project = Settings(tmp_path / "home", f"sqlite:///{tmp_path / 'mlflow.db'}", tmp_path / "artifacts")
    found = measure(project=project, count=60)
    assert [case for case in found.cases if not case.well] == []
    assert found.soaked.well == 60, found.soaked.plain()
    assert found.soaked.books.well
    assert all(books.well for books in found.books.values())
