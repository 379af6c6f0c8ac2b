"""The cascade service through the Open Inference Protocol: tasks that classify or rate the texts of tensors."""

from __future__ import annotations

import pytest

from pliant.serving.http.api_errors import ApiError
from pliant.serving.http.oip import routes
from tests.fixtures.cascade.fakes import Service
from tests.fixtures.cascade.in_process import QUIET, SURE, UNSURE, serving
from tests.fixtures.cascade.published import publish_tiny
from tests.fixtures.documented import check_answer
from tests.fixtures.fakes import run_virtually
from tests.fixtures.http.oip import body_of, byte_tensor, error_of, outputs_of, text_tensor
from tests.fixtures.registry import FolderRegistry

CLASSES = ["negative", "neutral", "positive"]


def infer(service: Service, model: str, fields: object, binary: bytes = b""):
    content, sent = body_of(fields, binary)
    path = model if model.startswith("/") else f"/v2/models/{model}/infer"
    return service.call_root("POST", path, content, **sent)


def ask(service: Service, *texts: str, **parameters):
    return infer(service, "reviews", {"inputs": [text_tensor("text", *texts)], "parameters": parameters})


def test_each_text_has_its_scores_in_the_order_of_the_classes_and_the_rest_of_its_answer():
    response = ask(Service(), "Good.", "Bad.")
    assert outputs_of(response) == {
        "scores": [0.125, 0.25, 0.625] * 2,
        "label": ["positive"] * 2,
        "class": [2, 2],
        "confidence": [0.625] * 2,
        "truncated": [False] * 2,
        "cut_short": [False] * 2,
        "on_time": [True] * 2,
        "level": ["small"] * 2,
        "id": ["rote-1"] * 2,
    }
    content = response.json()
    assert (content["model_name"], content["model_version"]) == ("reviews", "3")
    assert content["parameters"] == {"queue_seconds": 0.25, "run_seconds": 0.125}
    check_answer(routes.InferenceAnswer, content)


def test_the_id_of_an_answer_takes_its_label_later():
    service = Service("reviews")
    (id,) = outputs_of(ask(service, "Good."))["id"]
    assert service.post("/outcomes", {"id": id, "label": "positive"}).json()["correct"] is True


def test_a_regression_has_its_value_as_the_only_score_and_no_label():
    pair = [text_tensor("text", "a"), text_tensor("text_pair", "b")]
    response = infer(Service(), "similarity", {"inputs": pair})
    outputs = outputs_of(response)
    assert outputs["scores"] == [0.5] and "label" not in outputs and "class" not in outputs
    assert response.json()["outputs"][0]["shape"] == [1, 1]
    best = [{"name": "scores", "parameters": {"classification": 1}}]
    assert outputs_of(infer(Service(), "similarity", {"inputs": pair, "outputs": best}))["scores"] == ["0.500000:0"]


def test_metadata_are_those_of_the_answers():
    service = Service()
    metadata = service.call_root("GET", "/v2/models/reviews").json()
    check_answer(routes.ModelMetadata, metadata)
    assert (metadata["versions"], metadata["platform"]) == (["3"], "pliant_cascade")
    assert metadata["outputs"][0]["parameters"] == {"classes": CLASSES}
    given = [(entry["name"], entry["datatype"]) for entry in ask(service, "Good.").json()["outputs"]]
    assert given == [(entry["name"], entry["datatype"]) for entry in metadata["outputs"]]
    pair = service.call_root("GET", "/v2/models/paraphrase").json()
    assert [entry["name"] for entry in pair["inputs"]] == ["text", "text_pair"]
    assert service.call_root("GET", "/v2").json()["name"] == "pliant-cascade"


@pytest.mark.parametrize(
    ("inputs", "status", "sentence"),
    [
        ([text_tensor("text", "")], 400, "text[0] is ''"),
        ([text_tensor("text", *["a"] * 9)], 413, "text has 9 elements"),
    ],
)
def test_what_does_not_fit_is_refused(inputs, status, sentence):
    response = infer(Service(), "reviews", {"inputs": inputs})
    assert response.status_code == status and sentence in error_of(response)


def test_an_error_of_one_text_is_that_of_the_request():
    service = Service()
    response = ask(service, "Good.", "late")
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    assert "deadline is 1 second" in error_of(response)
    service.endpoint.trouble = ApiError(429, "full", "the queue is full; try again later", retry_after=9)
    response = ask(service, "Good.")
    assert (response.status_code, response.headers["retry-after"]) == (429, "9")


def test_a_real_cascade_answers_as_predict_does(tmp_path):
    registry = FolderRegistry(tmp_path)
    publish_tiny(registry)

    async def main():
        async with serving(registry, QUIET) as running:
            service = Service()
            service.app.state.endpoint = running.endpoint
            entry, data = byte_tensor("text", SURE.encode(), UNSURE.encode())
            content, sent = body_of({"inputs": [entry]}, data)
            headers = {name.replace("_", "-"): value for name, value in sent.items()}
            answer = await service._calling(service.root, "POST", "/v2/models/colours/infer", content, headers)
            native = await running.ask(SURE, UNSURE)
            return answer, native

    response, native = run_virtually(main())
    outputs = outputs_of(response)
    assert outputs["label"] == [answer["label"] for answer in native]
    assert outputs["level"] == ["small", "large"]
    expected = [share for answer in native for share in answer["probabilities"].values()]
    assert outputs["scores"] == pytest.approx(expected, abs=1e-5)
    assert response.json()["model_version"] == str(native[0]["versions"]["task"])
    assert response.json()["parameters"]["run_seconds"] > 0
