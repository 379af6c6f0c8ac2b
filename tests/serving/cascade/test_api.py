"""The routes of the cascade service except /predict: outcomes, errors, status, documentation."""

from __future__ import annotations

from pliant.serving.client import Client
from pliant.serving.http.api_errors import ApiError
from pliant.serving.loop.outcomes import MAX_LABELS
from tests.fixtures.cascade.fakes import Service


def test_a_prediction_holds_an_answer_for_each_text_in_order():
    answers = Service("reviews").ask(texts=["Good.", "Bad."]).json()["answers"]
    assert [answer["label"] for answer in answers] == ["positive", "positive"]
    assert sum(answers[0]["probabilities"].values()) == 1


def test_a_refusal_of_the_endpoint_is_passed_on_with_when_to_come_back_and_is_counted():
    service = Service("reviews")
    service.endpoint.trouble = ApiError(429, "full", "the queue is full; try again later")
    response = service.ask(text="Good.")
    assert (response.status_code, response.json()["error"]["code"]) == (429, "full")
    assert response.headers["retry-after"] == "1"
    service.ask(text="")
    assert service.endpoint.metrics.counts == {"full": 1, "invalid": 1}


def test_a_text_without_an_answer_has_its_error_in_its_place():
    answers = Service("reviews").ask(texts=["late", "Good."]).json()["answers"]
    assert (answers[0]["error"]["code"], answers[1]["label"]) == ("late", "positive")


def test_an_unknown_path_or_method_is_refused_in_the_same_shape():
    service = Service()
    assert service.call("GET", "/nothing").json()["error"]["code"] == "http"
    refused = service.call("DELETE", "/predict")
    assert (refused.status_code, refused.headers["allow"]) == (405, "POST")


def test_a_label_is_taken_for_an_answers_id_and_the_status_shows_it():
    service = Service("reviews")
    id = service.ask(text="Good.").json()["answers"][0]["id"]
    response = service.post("/outcomes", {"id": id, "label": "neutral"})
    taken = response.json()
    assert (response.status_code, taken["level"], taken["correct"], taken["repeated"]) == (200, "small", False, False)
    assert taken["promise"]["labels"] == 1 and not taken["promise"]["broken"]
    (figures,) = service.call("GET", "/status").json()["outcomes"]
    assert (figures["candidate"], figures["labels"], figures["accuracy"]) == ("default", 1, 0.0)


def test_labels_that_do_not_fit_are_refused_with_a_sentence():
    service = Service("reviews")
    id = service.ask(text="Good.").json()["answers"][0]["id"]
    for outcome, status, sentence in (
        ({"id": "other", "label": "neutral"}, 404, "id is 'other'"),
        ({"id": id, "label": "great"}, 422, "label is 'great'"),
        ({"id": id, "label": 1}, 422, "label is 1.0"),
        ({"id": id, "label": True}, 422, "label is True"),
        ({"id": id, "label": None}, 422, "label is None"),
        ({"id": 5, "label": "neutral"}, 422, "id is 5"),
        ({"id": id}, 422, "label is missing"),
        ({"id": id, "label": "neutral", "why": ""}, 422, "'why' is unknown"),
        ("neutral", 422, "outcome is 'neutral'"),
        ([], 422, "outcomes is a list of 0"),
        ([{}] * (MAX_LABELS + 1), 422, "outcomes is a list of 1001"),
    ):
        response = service.post("/outcomes", outcome)
        assert (response.status_code, sentence in response.text) == (status, True), response.text
    assert service.call("GET", "/status").json()["outcomes"] == []


def test_in_a_list_every_outcome_succeeds_or_fails_by_itself():
    service = Service("reviews")
    id = service.ask(text="Good.").json()["answers"][0]["id"]
    response = service.post("/outcomes", [{"id": id, "label": "positive"}, {"id": "old", "label": "positive"}, 3])
    content = response.json()
    assert (response.status_code, content["taken"], content["refused"]) == (200, 1, 2)
    assert [one.get("id") for one in content["outcomes"]] == [id, "old", None]
    assert content["outcomes"][1]["error"]["code"] == "unknown_id"
    assert service.post("/outcomes", [{"id": "old", "label": "positive"}]).status_code == 404


def test_a_regressions_label_is_a_number_that_is_near_enough_or_not():
    service = Service("similarity")
    for label, correct in ((0.7, True), (1, False)):
        id = service.ask(text=["a", "b"]).json()["answers"][0]["id"]
        assert service.post("/outcomes", {"id": id, "label": label}).json()["correct"] is correct
    assert service.call("POST", "/outcomes", b'{"id": "%s", "label": NaN}' % id.encode()).status_code == 422


def test_wanted_answers_are_listed_up_to_a_limit():
    service = Service("reviews")
    id = service.ask(text="Good.").json()["answers"][0]["id"]
    (wanted,) = service.call("GET", "/outcomes/wanted?limit=5").json()["wanted"]
    assert (wanted["id"], wanted["label"], wanted["inclusion"]) == (id, "positive", 1.0)
    for limit in ("0", "1001", "x", "", "%C2%B2"):
        assert service.call("GET", f"/outcomes/wanted?limit={limit}").status_code == 422


def test_alarms_are_listed_and_taken_back_by_administrators_alone():
    service = Service("reviews")
    for _ in range(80):
        service.ask(text="fine")
        service.post("/outcomes", {"id": f"rote-{len(service.endpoint.requests)}", "label": "negative"})
    (alarm,) = service.call("GET", "/outcomes/alarms").json()["alarms"]
    assert alarm["broken"] and alarm["taken_back"] is None
    assert service.call("DELETE", "/outcomes/alarms/1", kind="text/plain").status_code == 415
    assert service.call("DELETE", "/outcomes/alarms/9").status_code == 404
    assert service.call("DELETE", "/outcomes/alarms/1").json()["taken_back"]["at"] > 0
    assert service.call("GET", "/status").json()["outcomes"] == []
    service.client = Client("acme", 1.0, frozenset({"use", "monitor"}), "1234abcd")
    for method, path in (("GET", "/outcomes/alarms"), ("DELETE", "/outcomes/alarms/1"), ("POST", "/refresh")):
        response = service.call(method, path)
        assert (response.status_code, response.json()["error"]["code"]) == (403, "forbidden")


def test_answers_and_labels_carry_the_tenant_of_the_key():
    service = Service("reviews")
    service.client = Client("acme", 2.0, frozenset({"use"}), "1234abcd")
    service.ask(text="fine")
    service.post("/tei/predict", {"inputs": "fine"})
    assert [request.client for request in service.endpoint.requests] == [service.client] * 2
