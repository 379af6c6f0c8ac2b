"""The routes by which labels are given over HTTP, and the page that calls them."""

from __future__ import annotations

import hashlib
from base64 import b64encode

import pytest

from pliant import jsonl, labelling
from pliant.serving.cascade.questions import QuestionList, TakenLabels
from pliant.serving.cascade.settings import CascadeSettings
from pliant.serving.client import Client
from pliant.serving.http.app import asks_for_prediction
from tests.fixtures.cascade.fakes import Service
from tests.fixtures.documented import check_answer
from tests.fixtures.labels import PAIRS, REVIEWS


@pytest.fixture
def service(tmp_path):
    for questions in (REVIEWS, PAIRS):
        labelling.ask(labelling.folder_of(tmp_path), questions)
    return Service(settings=CascadeSettings(home=tmp_path, max_body_bytes=100_000))


def label(service, *labels: tuple[str, str], task: str = "reviews"):
    return service.post(f"/questions/{task}", [{"text": text, "label": name} for text, name in labels])


def test_questions_are_listed_and_labelled_without_keys_by_everybody(service, tmp_path):
    content = service.call("GET", "/questions").json()
    check_answer(QuestionList, content)
    assert [task["task"] for task in content["tasks"]] == ["pairs", "reviews"]
    assert content["tasks"][1]["texts"][0] == {"text": "Good.", "text2": None}
    answer = label(service, ("Good.", "positive"), ("Bad.", "negative"))
    assert (answer.status_code, answer.json()) == (200, {"taken": 2, "left": 1})
    check_answer(TakenLabels, answer.json())
    assert [len(task["texts"]) for task in service.call("GET", "/questions").json()["tasks"]] == [2, 1]
    assert service.post("/questions/pairs", [{"text": "C", "text2": "", "label": "1"}]).json()["left"] == 1
    assert [each.by for each in labelling.answers(labelling.folder_of(tmp_path), "pairs")] == ["service"]


def test_only_administrators_see_and_label_texts(service, tmp_path):
    service.client = Client("acme", 1.0, frozenset({"use", "monitor"}), "1234abcd")
    for answer in (service.call("GET", "/questions"), label(service, ("Good.", "positive"))):
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")
    service.client = Client("acme", 1.0, frozenset({"use", "admin"}), "1234abcd")
    assert label(service, ("Good.", "positive")).status_code == 200
    assert labelling.answers(labelling.folder_of(tmp_path), "reviews")[0].by == "acme 1234abcd"
    assert service.call("POST", "/questions/reviews", b"[]", kind="text/plain").status_code == 415


def test_labels_that_do_not_fit_are_refused_with_all_others_and_a_sentence(service):
    label(service, ("Bad.", "negative"))
    for labels, status, sentence in (
        (
            [("Good.", "positive"), ("Bad.", "neutral")],
            422,
            "labels[1]: label of 'Bad.' is 'neutral', but must be 'neg",
        ),
        ([("Good.", "great")], 422, "labels[0]: label of 'Good.' is 'great', but must be one of 'negative', 'neutral'"),
        ([("Fine.", "positive")], 422, "labels[0]: text is 'Fine.', but must be one of those whose labels are wanted"),
        ([("Good.", 3)], 422, "labels[0].label is 3"),
        ([], 422, "labels is a list of 0"),
    ):
        answer = label(service, *labels)
        assert (answer.status_code, sentence in answer.json()["error"]["message"]) == (status, True), answer.text
    assert service.post("/questions/reviews", {}).json()["error"]["message"].startswith("labels is a JSON dict")
    assert label(service, ("Good.", "positive"), task="mails").status_code == 404
    assert len(service.call("GET", "/questions").json()["tasks"][1]["texts"]) == 2


def test_a_full_disk_and_a_torn_file_are_sentences_and_lose_nothing(service, monkeypatch, tmp_path):
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(jsonl.os, "write", full)
        answer = label(service, ("Good.", "positive"))
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "not_kept")
        assert "No space left" in answer.text and answer.headers["retry-after"]
    assert label(service, ("Good.", "positive")).json()["taken"] == 1
    (labelling.folder_of(tmp_path) / "pairs.json").write_text("{")
    assert service.call("GET", "/questions").status_code == 503


def test_the_page_runs_its_own_script_alone_and_is_not_documented(service):
    page = service.call("GET", "/label")
    script = page.text.partition("<script>")[2].partition("</script>")[0]
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert page.headers["content-type"].startswith("text/html")
    assert f"script-src 'sha256-{digest}'" in page.headers["content-security-policy"]
    assert "innerHTML" not in page.text and "http" not in script
    paths = service.app.openapi()["paths"]
    assert {"/questions", "/questions/{task}"} <= set(paths) and "/label" not in paths


def test_labels_are_no_predictions_whatever_their_task_is_called():
    paths = ["/v1/questions/predict", "/v1/tei/questions/predict", "/v2/models/questions/infer", "/questions/predict"]
    assert [asks_for_prediction(path) for path in paths] == [False, True, True, True]
