"""The cascade service through the APIs of text-embeddings-inference and of Hugging Face's inference clients."""

from __future__ import annotations

import math

import pytest

from pliant.serving.cascade.api import scores
from pliant.serving.http.api_errors import ApiError
from pliant.serving.http.tei import PredictBody
from tests.fixtures.cascade.fakes import Service

BEST_FIRST = [
    {"score": 0.625, "label": "positive"},
    {"score": 0.25, "label": "neutral"},
    {"score": 0.125, "label": "negative"},
]
LONG = "word " * 300


def predict(service: Service, inputs: object, task: str = "reviews", **fields):
    return service.post(f"/tei/{task}/predict", {"inputs": inputs, **fields})


def test_one_text_gets_all_classes_best_first_at_either_address():
    assert predict(Service(), "Good.").json() == BEST_FIRST
    assert predict(Service(), ["Good."]).json() == BEST_FIRST
    assert Service("reviews").post("/tei/predict", {"inputs": "Good."}).json() == BEST_FIRST
    assert Service("reviews").post("/tei", {"inputs": "Good."}).json() == BEST_FIRST


def test_two_texts_in_a_list_are_a_pair():
    service = Service()
    assert [one["label"] for one in predict(service, ["It rains.", "Rain falls."], "paraphrase").json()] == [
        "yes",
        "no",
    ]
    assert service.endpoint.requests[-1].texts == (("It rains.", "Rain falls."),)
    assert len(predict(service, [["a", "b"], ["c", "d"]], "paraphrase").json()) == 2


def test_a_raw_score_of_a_class_that_is_certainly_wrong_is_finite():
    certain = scores(
        {"probabilities": {"yes": 1.0, "no": 0.0}, "label": "yes"}, PredictBody(inputs="a", raw_scores=True)
    )
    assert certain == [{"score": 0.0, "label": "yes"}, {"score": pytest.approx(-27.63, abs=0.01), "label": "no"}]


def test_a_body_with_parameters_gets_the_shape_of_the_inference_api():
    service = Service()
    assert predict(service, "Good.", parameters={}).json() == [BEST_FIRST]
    assert predict(service, "Good.", parameters={"top_k": 2}).json() == [BEST_FIRST[:2]]
    assert predict(service, [["Good."]], parameters={"top_k": 1}).json() == [BEST_FIRST[:1]]
    raw = predict(service, "Good.", parameters={"function_to_apply": "none"}).json()
    assert raw[0][0]["score"] == pytest.approx(math.log(0.625))


def test_a_long_text_is_cut_unless_that_is_not_wanted():
    service = Service()
    for fields in ({}, {"truncate": None}, {"truncate": True, "truncation_direction": "Right"}):
        assert predict(service, LONG, **fields).status_code == 200
    for fields, sentence in (
        ({"truncate": False}, "inputs is longer than 128 tokens: shorten it, or set truncate to true"),
        ({"truncation_direction": "Left"}, "truncation_direction is Left"),
    ):
        response = predict(service, LONG, **fields)
        assert (response.status_code, response.json()["error_type"]) == (413, "Validation")
        assert sentence in response.json()["error"]
        assert predict(service, "Good.", **fields).status_code == 200


@pytest.mark.parametrize(
    ("fields", "status", "sentence"),
    [
        ({}, 422, "inputs is missing"),
        ({"inputs": ["a", "b"]}, 422, "inputs is a pair of texts"),
        ({"inputs": [["a"], ["a", "b"]]}, 422, "inputs[1] is a pair of texts"),
        ({"inputs": [["a"]] * 9}, 413, "inputs is a list of 9"),
        ({"inputs": "a" * 70_000}, 413, "inputs is 70000 bytes"),
        ({"inputs": "a", "parameters": {"top_k": 0}}, 422, "parameters.top_k is 0"),
    ],
)
def test_what_does_not_fit_is_refused_in_teis_shape(fields, status, sentence):
    service = Service("reviews")
    response = service.post("/tei/predict", fields)
    assert response.status_code == status
    assert sentence in response.json()["error"] and response.json()["error_type"] == "Validation"
    assert sum(service.endpoint.metrics.counts.values()) == 1


def test_a_task_that_is_not_served_and_one_that_is_not_named_are_refused_with_those_that_are():
    response = predict(Service(), "Good.", "other")
    assert response.status_code == 404
    assert "must be one of paraphrase, reviews, similarity" in response.json()["error"]
    for path in ("/tei/other", "/tei/other/health"):
        assert Service().call("GET", path).status_code == 404
        assert Service().call("GET", path.replace("other", "reviews")).status_code == 200
    assert "several are served: reviews, paraphrase" in Service().post("/tei/predict", {"inputs": "a"}).json()["error"]


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (429, "full", (429, "Overloaded")),
        (503, "late", (429, "Overloaded")),
        (503, "failed", (424, "Backend")),
        (500, "internal", (424, "Backend")),
    ],
)
def test_overload_and_failures_have_teis_status(status, code, expected):
    service = Service()
    service.endpoint.trouble = ApiError(status, code, "it cannot be done")
    response = predict(service, "Good.")
    assert (response.status_code, response.json()["error_type"]) == expected
    assert ("retry-after" in response.headers) == (expected[0] == 429)


def test_a_batch_fails_as_a_whole_where_one_of_its_texts_has_no_answer():
    response = predict(Service(), [["Good."], ["late"]])
    assert (response.status_code, response.json()["error_type"]) == (429, "Overloaded")
    assert "deadline is 1 second" in response.json()["error"]
