"""The bins service through the Open Inference Protocol: streams that embed and classify the texts of tensors."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.fixtures.bins.in_process import serving
from tests.fixtures.bins.published import CLASSES, LONG, SHORT, TEXT, publish_tiny
from tests.fixtures.http.oip import body_of, byte_tensor, error_of, outputs_of, text_tensor
from tests.fixtures.registry import FolderRegistry


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
