"""What counts as a good answer to bad input: a refusal that says what and the limit, or an answer that declares itself."""

from __future__ import annotations

import pytest

from benchmarks.cascade.input import _cases, _declared, _describe, _refused

ERROR = {"error": {"message": "text is '', but must be longer", "field": "text"}}
ANSWER = {"label": "x", "truncated": True, "cleaned": 2}


@pytest.mark.parametrize("status", [400, 404, 413, 422, 499])
def test_a_refusal_that_names_the_field_is_well(status):
    assert _refused("text")(status, ERROR)


@pytest.mark.parametrize("status", [0, 200, 302, 500, 503])
def test_a_refusal_is_none_with_another_status_than_a_4xx(status):
    assert not _refused("text")(status, ERROR)
    assert not _refused(None)(status, ERROR)


@pytest.mark.parametrize("said", [None, "no", [], {}, {"error": "text"}, {"error": {}}, {"error": {"message": ""}}])
def test_a_refusal_that_says_nothing_is_not_well(said):
    assert not _refused(None)(400, said)


def test_a_refusal_of_another_field_is_not_well_unless_its_message_names_the_one_meant():
    assert not _refused("deadline")(400, ERROR)
    assert _refused("deadline")(400, {"error": {"field": None, "message": "deadline is 0, but must be above 0"}})


def test_a_refusal_without_a_field_is_well_where_none_is_meant():
    assert _refused(None)(400, {"error": {"message": "the body is no JSON"}})


def test_an_answer_that_declares_what_was_done_to_the_text_is_well():
    assert _declared("truncated")(200, {"answers": [ANSWER]})
    assert _declared("cleaned")(200, {"answers": [ANSWER]})


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (200, {"answers": [ANSWER | {"truncated": False}]}),
        (200, {"answers": [{"label": "x"}]}),
        (200, {"answers": []}),
        (200, None),
        (500, {"answers": [ANSWER]}),
        (400, ERROR),
    ],
    ids=["denied", "not said", "no answer", "no JSON", "a 500", "refused"],
)
def test_an_answer_that_declares_nothing_is_not_well(status, said):
    assert not _declared("truncated")(status, said)


def test_the_cases_hold_all_that_the_issue_names_and_no_judge_is_content_with_a_500_or_a_plain_answer():
    cases = {one.name: (one.body, one.judge) for one in _cases("topics")}
    assert {"empty text", "1 MB of text", "control characters", "invalid UTF-8", "10,000 texts at once"} <= set(cases)
    assert {"unknown task", "two texts for a task of one"} <= set(cases)
    assert len(cases["1 MB of text"][0]) >= 1_000_000
    with pytest.raises(UnicodeDecodeError):
        cases["invalid UTF-8"][0].decode()
    for _, judge in cases.values():
        assert not judge(500, {"error": {"message": "text texts task accuracy latency deadline colour"}})
        assert not judge(200, {"answers": [{"label": "x", "truncated": False, "cleaned": 0}]})


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (ERROR, "text is '', but must be longer"),
        ({"answers": [ANSWER]}, "x, truncated True, cleaned 2"),
        ({"error": "oops"}, "oops"),
        (None, "None"),
    ],
)
def test_what_was_said_is_shown_shortly_whatever_it_was(said, shown):
    assert _describe(said) == shown
