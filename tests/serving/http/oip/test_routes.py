"""The routes below /v2, over a model that gives back what it gets."""

from __future__ import annotations

import gzip
import json
import math
import re
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pliant.serving.http.api_errors import ApiError
from pliant.serving.http.oip import routes
from pliant.serving.http.oip.models import InferAnswer, InferRequest, RequestedOutput
from pliant.serving.http.oip.response import infer_response
from pliant.serving.http.oip.routes import PATHS
from pliant.serving.http.oip.tensors import from_binary, from_json, numbers, texts
from tests.fixtures.documented import body_schema, check_answer, check_body, statuses
from tests.fixtures.http.oip import MODEL, EchoService, error_of, outputs_of, text_tensor
from tests.serving.http.oip.test_tensors import check_equal, number_tensors, text_tensors

TWO = {"inputs": [text_tensor("first", "a", "b")], "outputs": [{"name": "first"}]}


@pytest.fixture
def service():
    return EchoService()


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("/v2/models/other", "model is 'other', but must be one of colours, echo"),
        ("/v2/models/other/ready", "model is 'other'"),
        ("/v2/models/echo/versions/4", "version '4' of the model echo is not served: its version 3 is"),
        ("/v2/models/echo/versions/4/ready", "version '4'"),
        ("/v2/models/echo/config", "GET '/v2/models/echo/config': there is no such path"),
        ("/v2/models/echo/versions/3/stats", "there is no such path"),
        ("/v2/nothing", "there is no such path"),
        ("/v2/", "there is no such path"),
    ],
)
def test_what_is_not_there_is_404_in_the_protocols_shape_and_counted(service, path, sentence):
    response = service.call("GET", path)
    assert response.status_code == 404 and sentence in error_of(response)
    assert sum(service.endpoint.counts.values()) == 1


def test_paths_beside_the_protocol_are_left_to_others(service):
    assert service.call("GET", "/v1/nothing").json() == {"detail": "Not Found"}
    assert service.call("GET", "/docs").status_code == 200
    assert set(service.call("GET", "/openapi.json").json()["paths"]) == set(PATHS)


def test_a_version_that_is_replaced_while_it_answers_is_not_found(service):
    service.endpoint.version = "4"
    assert service.infer(TWO).json()["model_version"] == "4"
    response = service.infer(TWO, path="/v2/models/echo/versions/3/infer")
    assert response.status_code == 404 and "version '3'" in error_of(response)


def test_compressed_bodies_are_read_and_other_compressions_refused(service):
    content = json.dumps({**TWO, "inputs": [text_tensor("first", "a")]}).encode()
    path, kind = "/v2/models/echo/infer", {"content_type": "application/json"}
    for encoding, body in (("gzip", gzip.compress(content)), ("deflate", zlib.compress(content))):
        response = service.call("POST", path, body, content_encoding=encoding, **kind)
        assert outputs_of(response) == {"first": ["a"]}
        assert service.call("POST", path, body[:-9], content_encoding=encoding, **kind).status_code == 400
    response = service.call("POST", path, content, content_encoding="br", **kind)
    assert response.status_code == 415 and "content-encoding is br" in error_of(response)
    bomb = gzip.compress(b" " * 10_000_000)
    response = service.call("POST", path, bomb, content_encoding="gzip", **kind)
    assert response.status_code == 413 and "once it is decompressed" in error_of(response)


@pytest.mark.parametrize(
    ("content", "headers", "status", "sentence"),
    [
        (b"{", {}, 400, "body is not JSON"),
        (b"[]", {}, 400, "body is a JSON list, but must be an object"),
        (b"\xff", {}, 400, "body is not JSON"),
        (b'{"inputs": [], "inputs": []}', {}, 400, "'inputs' is given 2 times"),
        (b"[" * 50_000, {}, 400, "body is not JSON"),
        (b'{"id": 1}', {}, 400, "id is 1"),
        (b'{"inputs": [{"name": "first", "datatype": "FP32", "shape": [1], "data": [NaN]}]}', {}, 400, "not finite"),
        (b"{}", {"content_type": "text/plain"}, 415, "content-type is text/plain"),
        (b"{}", {"inference_header_content_length": "3"}, 400, "inference-header-content-length is '3'"),
        (b"{}abc", {"inference_header_content_length": "2"}, 400, "inputs is missing"),
        (b"{}", {"inference_header_content_length": "1"}, 400, "body is not JSON"),
        (b" " * 100_001, {}, 413, "must be at most 100000 bytes"),
    ],
)
def test_a_malformed_body_is_an_error_of_the_caller_and_the_next_request_served(
    service, content, headers, status, sentence
):
    response = service.call("POST", "/v2/models/echo/infer", content, **{"content_type": "application/json", **headers})
    assert response.status_code == status and sentence in error_of(response)
    assert sum(service.endpoint.counts.values()) == 1
    assert service.infer(TWO).status_code == 200


SERVICE = EchoService()


@settings(max_examples=40)
@given(st.binary(max_size=60), st.sampled_from([None, "2", "40", "-1"]), st.sampled_from([None, "gzip", "deflate"]))
def test_any_bytes_are_answered_with_an_error_of_the_caller(content, length, encoding):
    headers = {"inference_header_content_length": length, "content_encoding": encoding}
    sent = {name: value for name, value in headers.items() if value is not None}
    response = SERVICE.call("POST", "/v2/models/echo/infer", content, **sent)
    assert response.status_code == 400 and error_of(response)


INFER = routes.MODEL + routes.INFER
INPUT = text_tensor("first", "a")


def test_a_request_is_taken_within_the_documented_limits_of_its_fields(service):
    def read(body):
        response = service.infer({"outputs": [{"name": "first"}], **body})
        return response.status_code, {**response.json(), "id": ""}

    usual = {"inputs": [INPUT]}
    refused = check_body(body_schema(service.root, INFER), usual, read, ("inputs", "outputs", "parameters"))
    assert refused == {400} and refused <= statuses(service.root, INFER)
    properties = body_schema(service.root, INFER)["properties"]
    parameters = properties["parameters"]["properties"]

    def read_parameters(parameters):
        return read({**usual, "parameters": parameters})

    check_body(
        {"properties": {"binary_data_output": parameters["binary_data_output"]}}, {}, read_parameters_of(service)
    )
    for name, most in (("inputs", properties["inputs"]["maxItems"]), ("outputs", properties["outputs"]["maxItems"])):
        status, content = read({**usual, name: [{"name": "first"}] * (most + 1)})
        assert status == 400 and f"of at most {most}" in content["error"]
    assert read({"inputs": [INPUT][: properties["inputs"]["minItems"] - 1]})[0] == 400
    assert read({"inputs": [INPUT] * properties["inputs"]["minItems"]})[0] == 200


def read_parameters_of(service):
    """Reads parameters, and whether the answer is binary."""

    def read(parameters):
        response = service.infer({"inputs": [INPUT], "outputs": [{"name": "first"}], "parameters": parameters})
        return response.status_code, response.headers[
            "content-type"
        ] if response.status_code == 200 else response.json()

    return read


def test_every_documented_datatype_is_read(service):
    (entry,) = [body_schema(service.root, INFER)["properties"]["inputs"]["items"]]
    for datatype in entry["properties"]["datatype"]["enum"]:
        data = {"BYTES": ["a"], "BOOL": [True]}.get(datatype, [1])
        tensor = {"name": "first", "datatype": datatype, "shape": [1], "data": data}
        response = service.infer({"inputs": [tensor], "outputs": [{"name": "first"}]})
        assert response.json()["outputs"][0]["data"] == data
        assert service.infer({"inputs": [{**tensor, "datatype": datatype.lower()}]}).status_code == 400
    most = entry["properties"]["shape"]["maxItems"]
    for shape in ([1] * most, [1] * (most + 1)):
        assert service.infer({"inputs": [{**INPUT, "shape": shape}]}).status_code == 400
    for name in entry["required"]:
        assert service.infer({"inputs": [{key: INPUT[key] for key in INPUT if key != name}]}).status_code == 400


def test_answers_have_the_documented_fields_and_no_other(service):
    check_answer(routes.ServerMetadata, service.call("GET", "/v2").json())
    check_answer(routes.Live, service.call("GET", routes.LIVE).json())
    check_answer(routes.Ready, service.call("GET", routes.READY).json())
    check_answer(routes.ModelReady, service.call("GET", "/v2/models/echo/ready").json())
    for name in ("echo", "colours"):
        check_answer(routes.ModelMetadata, service.call("GET", f"/v2/models/{name}").json())
    check_answer(routes.OipError, service.call("GET", "/v2/nothing").json())
    check_answer(routes.InferenceAnswer, service.infer({"inputs": [INPUT], "outputs": [{"name": "first"}]}).json())
    binary = [{"name": "first", "parameters": {"binary_data": True}}]
    response = service.infer({"inputs": [INPUT], "outputs": binary, "id": "7"})
    length = int(response.headers[routes.JSON_LENGTH])
    check_answer(routes.InferenceAnswer, json.loads(response.content[:length]))


def test_every_path_is_documented_with_its_parameters_and_the_statuses_that_it_may_answer(service):
    page = json.loads(json.dumps(service.root.openapi()))["paths"]
    assert set(page) == set(routes.PATHS)
    for path, operations in page.items():
        ((method, operation),) = operations.items()
        assert method == ("post" if path.endswith("/infer") else "get")
        described = [entry["name"] for entry in operation.get("parameters", []) if entry["in"] == "path"]
        assert described == re.findall(r"\{(\w+)\}", path)
        expected = {"/infer": {400, 404, 413, 415, 429, 500, 503}, "/ready": {404, 503}}
        ends = expected.get(path[path.rindex("/") :], {404} if "{" in path else set())
        ends = {503} if "/health/" in path else ends
        assert {int(status) for status in operation["responses"]} == {200} | ends
    names = [operation["operationId"] for operations in page.values() for operation in operations.values()]
    assert len(names) == len(set(names))
    kinds = page[INFER]["post"]["requestBody"]["content"]
    assert set(kinds) == {"application/json", "application/octet-stream"}
    headers = {entry["name"] for entry in page[INFER]["post"]["parameters"] if entry["in"] == "header"}
    assert headers == {"Inference-Header-Content-Length", "Content-Encoding"}


def request(*outputs: RequestedOutput, model=MODEL, **fields) -> InferRequest:
    return InferRequest(model, fields.pop("id", None), {}, outputs, {}, **fields)


def parts(answer) -> tuple[dict, bytes]:
    """The JSON of an answer, and the bytes after it, as a client divides them."""
    length = answer.headers.get("Inference-Header-Content-Length")
    size = len(answer.body) if length is None else int(length)
    return json.loads(answer.body[:size]), answer.body[size:]


@given(
    st.lists(
        st.tuples((number_tensors() | text_tensors()).filter(lambda t: t.shape), st.booleans()), min_size=1, max_size=3
    )
)
def test_what_is_written_is_read_back_whichever_outputs_are_binary(chosen):
    names = ("first", "second", "third")[: len(chosen)]
    tensors = [type(tensor)(name, *_rest(tensor)) for name, (tensor, _) in zip(names, chosen, strict=True)]
    outputs = [RequestedOutput(name, binary) for name, (_, binary) in zip(names, chosen, strict=True)]
    answer = infer_response(request(*outputs), InferAnswer(tensors, "3"))
    content, data = parts(answer)
    for entry, tensor, output in zip(content["outputs"], tensors, outputs, strict=True):
        form = entry["name"], entry["datatype"], tuple(entry["shape"])
        if output.binary:
            size = entry["parameters"]["binary_data_size"]
            read, data = from_binary(*form, memoryview(data[:size])), data[size:]
            if tensor.datatype == "BYTES":
                read = texts(read.name, [element.decode() for element in read.elements], read.shape)
        else:
            read = from_json(*form, entry["data"])
        check_equal(tensor, read)
    assert data == b""
    kind = "application/octet-stream" if any(binary for _, binary in chosen) else "application/json"
    assert answer.headers["content-type"] == kind


def _rest(tensor):
    return tensor.datatype, tensor.shape, tensor.elements


def test_an_answer_names_model_version_and_request_and_says_how_it_came_about():
    answer = InferAnswer([numbers("first", "INT32", [1, 2])], "3", {"queue_seconds": 0.5})
    content, _ = parts(infer_response(request(RequestedOutput("first", False), id="é7"), answer))
    assert content == {
        "model_name": "echo",
        "model_version": "3",
        "id": "é7",
        "parameters": {"queue_seconds": 0.5},
        "outputs": [{"name": "first", "datatype": "INT32", "shape": [2], "data": [1, 2]}],
    }
    content, _ = parts(infer_response(request(RequestedOutput("first", False)), InferAnswer(answer.outputs, None)))
    assert list(content) == ["model_name", "parameters", "outputs"]


def test_an_output_that_a_replaced_model_no_longer_gives_may_be_tried_again():
    with pytest.raises(ApiError, match="the model echo was replaced while it answered; try again") as raised:
        infer_response(request(RequestedOutput("second", False)), InferAnswer([texts("first", ["a"])], "3"))
    assert raised.value.status == 503


def test_a_number_that_is_not_finite_is_null_in_json():
    answer = InferAnswer([numbers("first", "FP32", [math.nan, 1])], "3")
    content, _ = parts(infer_response(request(RequestedOutput("first", False)), answer))
    assert content["outputs"][0]["data"] == [None, 1.0]
    assert np.isnan(np.array(content["outputs"][0]["data"], np.float32)[0])  # as clients read it
