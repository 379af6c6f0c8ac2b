"""The OpenAPI page of the protocol documents what its routes take and answer."""

from __future__ import annotations

import json
import re

import pytest

from pliant.serving.http.oip import schemas
from tests.fixtures.documented import body_schema, check_answer, check_body, statuses
from tests.fixtures.http.oip import EchoService, text_tensor

INFER = schemas.MODEL + schemas.INFER
INPUT = text_tensor("first", "a")


@pytest.fixture
def service():
    return EchoService()


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
    check_answer(schemas.ServerMetadata, service.call("GET", "/v2").json())
    check_answer(schemas.Live, service.call("GET", schemas.LIVE).json())
    check_answer(schemas.Ready, service.call("GET", schemas.READY).json())
    check_answer(schemas.ModelReady, service.call("GET", "/v2/models/echo/ready").json())
    for name in ("echo", "colours"):
        check_answer(schemas.ModelMetadata, service.call("GET", f"/v2/models/{name}").json())
    check_answer(schemas.OipError, service.call("GET", "/v2/nothing").json())
    check_answer(schemas.InferenceAnswer, service.infer({"inputs": [INPUT], "outputs": [{"name": "first"}]}).json())
    binary = [{"name": "first", "parameters": {"binary_data": True}}]
    response = service.infer({"inputs": [INPUT], "outputs": binary, "id": "7"})
    length = int(response.headers[schemas.JSON_LENGTH])
    check_answer(schemas.InferenceAnswer, json.loads(response.content[:length]))


def test_every_path_is_documented_with_its_parameters_and_the_statuses_that_it_may_answer(service):
    page = json.loads(json.dumps(service.root.openapi()))["paths"]
    assert set(page) == set(schemas.PATHS)
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
