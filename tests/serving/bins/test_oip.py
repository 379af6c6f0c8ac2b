"""The bins service through the Open Inference Protocol: streams that embed and classify the texts of tensors."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pliant.serving.bins.api import create_app
from pliant.serving.http.oip import routes
from tests.fixtures.bins.in_process import QUIET, serving
from tests.fixtures.bins.published import CLASSES, LONG, MOST, SHORT, TEXT, publish_tiny
from tests.fixtures.documented import check_answer
from tests.fixtures.http.oip import body_of, byte_tensor, error_of, outputs_of, text_tensor
from tests.fixtures.registry import FolderRegistry


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    registry = FolderRegistry(tmp_path_factory.mktemp("registry"))
    publish_tiny(registry)
    with serving(registry) as service:
        yield service


def infer(service, model: str, fields: object, binary: bytes = b"", **headers: str):
    content, sent = body_of(fields, binary)
    path = model if model.startswith("/") else f"/v2/models/{model}/infer"
    return service.call("POST", path, content, **{**sent, **headers})


def ask(service, model: str, *texts: str, outputs: tuple[str, ...] = (), **parameters):
    named = {"outputs": [{"name": name} for name in outputs]} if outputs else {}
    return infer(service, model, {"inputs": [text_tensor("text", *texts)], "parameters": parameters, **named})


def test_embeddings_are_those_of_the_native_route(both):
    native = both.post("/meanings/embed", {"inputs": [SHORT, TEXT, LONG]})
    answer = ask(both, "meanings", SHORT, TEXT, LONG)
    outputs = outputs_of(answer)
    np.testing.assert_allclose(np.reshape(outputs["embedding"], (3, 16)), native.json(), atol=1e-6)
    assert ",".join(map(str, outputs["tokens"])) == native.headers["x-pliant-length"]
    content = answer.json()
    assert (content["model_name"], content["model_version"]) == ("meanings", "1")
    assert [entry["shape"] for entry in content["outputs"]] == [[3, 16], [3]]
    assert content["parameters"]["queue_seconds"] >= 0 and content["parameters"]["run_seconds"] > 0


def test_scores_come_in_the_order_of_the_classes_that_the_metadata_list(both):
    native = both.post("/colours/predict", {"inputs": [[SHORT], [TEXT]]}).json()
    outputs = outputs_of(ask(both, "colours", SHORT, TEXT))
    scores = np.reshape(outputs["scores"], (2, 3))
    for row, best in zip(scores, native, strict=True):
        assert dict(zip(CLASSES, row.tolist(), strict=True)) == pytest.approx({e["label"]: e["score"] for e in best})
    assert outputs["label"] == [best[0]["label"] for best in native]
    assert [CLASSES[index] for index in outputs["class"]] == outputs["label"]
    raw = outputs_of(ask(both, "colours", SHORT, raw_scores=True, outputs=("scores",)))
    expected = both.post("/colours/predict", {"inputs": SHORT, "raw_scores": True}).json()
    assert max(raw["scores"]) == pytest.approx(expected[0]["score"], abs=1e-5) and list(raw) == ["scores"]


def test_pairs_are_two_tensors_where_a_stream_classifies(both):
    pair = {"inputs": [text_tensor("text", SHORT), text_tensor("text_pair", TEXT)], "outputs": [{"name": "scores"}]}
    native = both.post("/colours/predict", {"inputs": [SHORT, TEXT]}).json()
    assert max(outputs_of(infer(both, "colours", pair))["scores"]) == pytest.approx(native[0]["score"], abs=1e-6)
    response = infer(both, "meanings", pair | {"outputs": []})
    assert response.status_code == 400 and "must be one of text" in error_of(response)


def test_binary_texts_give_the_same_and_binary_outputs_the_same_bytes(both):
    entry, data = byte_tensor("text", SHORT.encode(), "é".encode())
    by_json = outputs_of(ask(both, "meanings", SHORT, "é"))["embedding"]
    response = infer(both, "meanings", {"inputs": [entry], "parameters": {"binary_data_output": True}}, data)
    length = int(response.headers["inference-header-content-length"])
    first, second = json.loads(response.content[:length])["outputs"]
    size = first["parameters"]["binary_data_size"]
    assert size == 2 * 16 * 4 and second["parameters"]["binary_data_size"] == 2 * 4
    embeddings = np.frombuffer(response.content[length : length + size], "<f4")
    np.testing.assert_allclose(embeddings, by_json, atol=1e-6)


def test_the_best_classes_may_be_asked_for_instead(both):
    wanted = [{"name": "scores", "parameters": {"classification": 2}}]
    response = infer(both, "colours", {"inputs": [text_tensor("text", SHORT)], "outputs": wanted})
    native = both.post("/colours/predict", {"inputs": SHORT, "parameters": {"top_k": 2}}).json()[0]
    assert [text.split(":")[2] for text in outputs_of(response)["scores"]] == [entry["label"] for entry in native]
    assert response.json()["outputs"][0]["shape"] == [1, 2]


def test_metadata_tell_tensors_versions_and_classes(both):
    colours, meanings = (both.call("GET", f"/v2/models/{name}").json() for name in ("colours", "meanings"))
    assert (colours["versions"], colours["platform"]) == (["1"], "pliant_bins")
    assert colours["inputs"] == meanings["inputs"] == [{"name": "text", "datatype": "BYTES", "shape": [-1]}]
    assert colours["outputs"] == [
        {"name": "scores", "datatype": "FP32", "shape": [-1, 3], "parameters": {"classes": list(CLASSES)}},
        {"name": "label", "datatype": "BYTES", "shape": [-1]},
        {"name": "class", "datatype": "INT64", "shape": [-1]},
        {"name": "tokens", "datatype": "INT32", "shape": [-1]},
    ]
    assert [entry["name"] for entry in meanings["outputs"]] == ["embedding", "tokens"]
    for metadata, outputs in ((colours, ask(both, "colours", SHORT)), (meanings, ask(both, "meanings", SHORT))):
        given = [(entry["name"], entry["datatype"], len(entry["shape"])) for entry in outputs.json()["outputs"]]
        assert given == [(entry["name"], entry["datatype"], len(entry["shape"])) for entry in metadata["outputs"]]


def test_parameters_are_those_of_the_native_routes(both):
    cut = outputs_of(ask(both, "meanings", LONG + "dogs", truncation_direction="Left"))["embedding"]
    native = both.post("/meanings/embed", {"inputs": LONG + "dogs", "truncation_direction": "Left"}).json()[0]
    np.testing.assert_allclose(cut, native, atol=1e-6)
    for parameters, status, sentence in (
        ({"truncate": False}, 413, f"longer than {MOST} tokens"),
        ({"truncate": "no"}, 400, "truncate is 'no'"),
        ({"truncation_direction": "up"}, 400, "truncation_direction is 'up'"),
        ({"normalize": False}, 400, "normalizes its embeddings itself"),
        ({"deadline": 61}, 400, "deadline is 61"),
        ({"timeout": 0}, 400, "timeout is 0"),
    ):
        response = ask(both, "meanings", LONG, **parameters)
        assert response.status_code == status and sentence in error_of(response)
    assert ask(both, "meanings", SHORT, colour="red").headers["x-pliant-ignored"] == "colour"
    assert "x-pliant-ignored" not in ask(both, "meanings", SHORT, deadline=30.0, truncate=True, normalize=True).headers


def test_a_deadline_counts_in_parameters_and_in_the_header(both):
    for response in (
        ask(both, "meanings", SHORT, deadline=1e-6),
        ask(both, "meanings", SHORT, timeout=1),
        infer(both, "meanings", {"inputs": [text_tensor("text", SHORT)]}, x_pliant_deadline="1e-6"),
    ):
        assert response.status_code == 503 and "the queue is too long to answer within it" in error_of(response)
        assert int(response.headers["retry-after"]) >= 1
    assert ask(both, "meanings", SHORT, deadline=30.0).status_code == 200


BAD = [
    ([text_tensor("text", SHORT, " ")], 400, "text[1] is ' '"),
    ([text_tensor("text", *[SHORT] * 9)], 413, "text has 9 elements"),
    ([text_tensor("text", "a" * 70_000)], 413, "text[0] is 70000 bytes"),
]


@pytest.mark.parametrize(("inputs", "status", "sentence"), BAD)
def test_what_does_not_fit_is_refused_and_the_next_request_served(both, inputs, status, sentence):
    response = infer(both, "meanings", {"inputs": inputs})
    assert response.status_code == status and sentence in error_of(response)
    assert ask(both, "meanings", SHORT).status_code == 200


def test_a_stream_of_another_version_answers_with_it_and_the_former_is_gone(tmp_path):
    registry = FolderRegistry(tmp_path)
    publish_tiny(registry, "meanings")
    with serving(registry) as service:
        publish_tiny(registry, "meanings", seed=1)
        assert service.post("/refresh", {}).json()["outcome"] == "changed"
        assert ask(service, "meanings", SHORT).json()["model_version"] == "2"
        assert service.call("GET", "/v2/models/meanings").json()["versions"] == ["2"]
        assert service.call("GET", "/v2/models/meanings/versions/1/ready").status_code == 404


def test_a_full_queue_is_429_with_when_to_come_back(tmp_path):
    registry = FolderRegistry(tmp_path)
    publish_tiny(registry, "meanings")
    with serving(registry, QUIET.replace(max_waiting=1)) as service:
        service.devices[0].seconds = 0.2
        response = ask(service, "meanings", *[SHORT] * 8)
        assert response.status_code == 429 and error_of(response) == "the queue is full; try again later"
        assert int(response.headers["retry-after"]) >= 1


def test_requests_are_counted_as_those_of_the_native_routes(both):
    def answered() -> float:
        return both.sample("pliant_outcomes_total", task="meanings", outcome="on_time") or 0.0

    before = answered()
    ask(both, "meanings", SHORT, TEXT)
    assert answered() == before + 2
    errors = both.sample("pliant_refusals_total", code="unknown_task") or 0.0
    ask(both, "other", SHORT)
    assert both.sample("pliant_refusals_total", code="unknown_task") == errors + 1


def test_health_and_unknown_paths_beside_those_of_tei(both, monkeypatch):
    for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/colours/ready", "/health", "/colours/health"):
        assert both.call("GET", path).status_code == 200
    assert both.call("GET", "/v2").json()["name"] == "pliant-bins"
    assert error_of(both.call("POST", "/v2/repository/index"))
    assert both.call("GET", "/v2/models/colours/infer").headers["allow"] == "POST"
    monkeypatch.setattr(type(both.endpoint), "ready", False)
    assert error_of(both.call("GET", "/v2/health/ready")) == "the service is not ready"
    assert both.call("GET", "/v2/health/live").status_code == 200


def test_answers_have_the_documented_fields_and_the_page_has_the_routes(both, tmp_path):
    check_answer(routes.InferenceAnswer, ask(both, "colours", SHORT).json())
    check_answer(routes.ModelMetadata, both.call("GET", "/v2/models/colours").json())
    assert set(routes.PATHS) <= set(create_app(tmp_path).openapi()["paths"])
