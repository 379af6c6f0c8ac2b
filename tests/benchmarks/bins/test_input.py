"""What counts as a good refusal of bad input, in the shapes of both APIs."""

from __future__ import annotations

import pytest

from benchmarks.bins.input import answered, cases, overloaded, refused, refused_by_method

TEI = {"error": "inputs is '', but must be longer", "error_type": "Validation"}
OPENAI = {"error": {"message": "no such model", "param": "model", "type": "invalid_request_error"}}


@pytest.mark.parametrize(
    ("status", "said", "well"),
    [(400, TEI, True), (413, TEI, True), (200, TEI, False), (500, TEI, False), (429, TEI, False), (400, None, False)],
)
def test_a_refusal_is_a_4xx_that_names_the_field_and_is_no_overload(status, said, well):
    assert refused("inputs")(status, said) is well


def test_a_refusal_that_names_another_field_is_not_well():
    assert not refused("truncate")(400, TEI)
    assert refused("model")(404, OPENAI)
    assert not refused(None)(400, {"error": ""})


def test_too_late_is_overload_and_nobodys_mistake():
    assert overloaded(429, TEI) and overloaded(503, TEI)
    assert not overloaded(400, TEI)
    assert not overloaded(429, {})


def test_a_good_answer_is_a_list_with_something_in_it():
    assert answered(200, [[0.1]])
    assert not answered(200, [])
    assert not answered(400, [[0.1]])
    assert refused_by_method(405, None) and not refused_by_method(200, None)


@pytest.mark.parametrize("head", ["embedding", "classification"])
def test_there_are_many_cases_each_named_once_and_asked_of_what_the_head_does(head):
    found = cases("tiny", head)
    names = [one.name for one in found]
    assert len(found) >= 15 and len(set(names)) == len(names)
    assert found[-1].judge is answered
    assert found[0].path == f"/tiny{'/embed' if head == 'embedding' else '/predict'}"
    assert {one.path for one in found if one.name == "unknown stream"} == {found[0].path.replace("tiny", "chess")}
