"""The routes below /v2, over a model that gives back what it gets: requests are read, and answers written, as documented."""

from __future__ import annotations

import asyncio
import gzip
import json
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from pliant.errors import InputError
from pliant.serving.http.api_errors import ApiError
from pliant.serving.http.oip import routes
from pliant.serving.http.oip.models import (
    BYTES,
    InferAnswer,
    InferRequest,
    RequestedOutput,
    from_binary,
    from_json,
    numbers,
    texts,
    to_binary,
    to_json,
)
from pliant.serving.http.oip.routes import (
    MAX_TENSORS,
    PATHS,
    PIECE_BYTES,
    best_classes,
    check_type,
    infer_response,
    read_parts,
    read_request,
)
from tests.fixtures.documented import body_schema, check_answer, check_body, statuses
from tests.fixtures.http.oip import MAX_COUNT, MODEL, EchoService, byte_tensor, error_of, text_tensor
from tests.serving.http.oip.test_models import check_equal, number_tensors, text_tensors

FIRST = text_tensor("first", "a", "b")


def read(fields, binary: bytes = b"", model=MODEL):
    return read_request(model, fields, memoryview(binary))


def entry_of(name: str, tensor, binary: bytes | None):
    content = {"name": name, "datatype": tensor.datatype, "shape": list(tensor.shape)}
    if binary is not None:
        return {**content, "parameters": {"binary_data_size": len(binary)}}
    data = to_json(tensor)
    return {**content, "data": data.tolist() if isinstance(data, np.ndarray) else data}


SENT = (number_tensors() | text_tensors()).filter(lambda tensor: len(tensor.shape) in (1, 2))


@given(st.lists(st.tuples(SENT, st.booleans()), min_size=1, max_size=3))
def test_tensors_in_json_and_in_bytes_are_read_from_one_body_in_any_order(sent):
    names, entries, binary = ("first", "second", "third"), [], b""
    for name, (tensor, is_binary) in zip(names, sent, strict=False):
        data = to_binary(tensor) if is_binary else None
        entries.append(entry_of(name, tensor, data))
        binary += data or b""
    inputs = read(json.loads(json.dumps({"inputs": entries})), binary).inputs
    for name, (tensor, _) in zip(names, sent, strict=False):
        assert (inputs[name].datatype, inputs[name].shape) == (tensor.datatype, tensor.shape)
        assert to_binary(inputs[name]) == to_binary(tensor)


def changed(**changes):
    return {"inputs": [{**FIRST, **changes}]}


OUTPUT = "outputs[0].parameters"
MISFITS = [
    *(({"inputs": value}, "inputs") for value in (None, FIRST, [], [FIRST] * (MAX_TENSORS + 1))),
    ({}, "inputs"),
    ({"inputs": ["first"]}, "inputs[0]"),
    ({"inputs": [FIRST, FIRST]}, "inputs[1].name"),
    *((changed(name=value), "inputs[0].name") for value in ("other", None, ["first"])),
    *((changed(datatype=value), "inputs[0].datatype") for value in ("BF16", 7)),
    (changed(shape=None), "inputs[0].shape"),
    (changed(shape=[1] * 9), "inputs[0].shape"),
    *((changed(shape=[value]), "inputs[0].shape[0]") for value in (-2, True, 1.0, 2**63)),
    (changed(shape=[1, 1, 2]), "datatype and shape of first"),
    (changed(shape=[3]), "data of first"),
    (changed(data={}), "data of first"),
    (changed(data=None), "inputs[0].data"),
    ({"inputs": [{"name": "first", "datatype": BYTES, "shape": [1]}]}, "inputs[0].data"),
    (changed(parameters=3), "inputs[0].parameters"),
    *(
        (changed(parameters={"binary_data_size": value}), "inputs[0].parameters.binary_data_size")
        for value in (0, -1, True, 4.0, "4", 10**30)
    ),
    (changed(parameters={"shared_memory_region": "r"}), "inputs[0].parameters.shared_memory_region"),
    ({"outputs": {}}, "outputs"),
    ({"outputs": [{"name": "first"}] * (MAX_TENSORS + 1)}, "outputs"),
    ({"outputs": [{"name": "x"}]}, "outputs[0].name"),
    ({"outputs": [{"name": "first"}] * 2}, "outputs[1].name"),
    ({"outputs": [{"name": "first", "parameters": {"binary_data": 1}}]}, f"{OUTPUT}.binary_data"),
    ({"outputs": [{"name": "first", "parameters": {"classification": 1}}]}, f"{OUTPUT}.classification"),
    ({"outputs": [{"name": "first", "parameters": {"shared_memory_region": 1}}]}, f"{OUTPUT}.shared_memory_region"),
    ({"parameters": []}, "parameters"),
    ({"parameters": {"binary_data_output": "yes"}}, "parameters.binary_data_output"),
    ({"parameters": {"volume": "loud"}}, "parameters.volume"),
    ({"id": 7}, "id"),
    ({"id": "\ud800"}, "id"),
]


@pytest.mark.parametrize(("fields", "name"), MISFITS)
def test_what_does_not_fit_is_named(fields, name):
    with pytest.raises(InputError) as raised:
        read({"inputs": [FIRST], **fields} if fields else fields)
    assert raised.value.field == name


@pytest.mark.parametrize(
    ("size", "binary", "name"),
    [
        (5, b"1234", "inputs[0].parameters.binary_data_size"),
        (4, b"\0\0\0\0a", "body"),
        (4, b"\xff\xff\xff\xff", "binary data of first"),
        (0, b"", "binary data of first"),
    ],
)
def test_sizes_that_do_not_add_up_are_named(size, binary, name):
    entry = {"name": "first", "datatype": BYTES, "shape": [1], "parameters": {"binary_data_size": size}}
    with pytest.raises(InputError) as raised:
        read({"inputs": [entry]}, binary)
    assert raised.value.field == name


def test_no_more_elements_are_read_than_the_model_takes():
    entry, data = byte_tensor("first", *[b"a"] * (MAX_COUNT + 1))
    for fields, binary in (
        ({"inputs": [text_tensor("first", *["a"] * (MAX_COUNT + 1))]}, b""),
        ({"inputs": [entry]}, data),
        ({"inputs": [{**entry, "shape": [2**60]}]}, data),
    ):
        with pytest.raises(ApiError, match="elements") as raised:
            read(fields, binary)
        assert raised.value.status == 413
    assert len(read({"inputs": [text_tensor("first", *["a"] * MAX_COUNT)]}).inputs["first"].elements) == MAX_COUNT
    many = numbers("first", "UINT8", np.zeros(MAX_COUNT + 1))
    assert read({"inputs": [entry_of("first", many, None)]}).inputs["first"].shape == (MAX_COUNT + 1,)


def test_outputs_are_those_that_are_named_or_all_and_each_says_whether_it_is_binary():
    def outputs(**fields):
        return read({"inputs": [FIRST], **fields}).outputs

    everything = tuple(RequestedOutput(name, False) for name in ("first", "second", "third"))
    assert outputs() == outputs(outputs=[]) == outputs(outputs=None) == everything
    binary = {"binary_data_output": True}
    assert outputs(parameters=binary) == tuple(RequestedOutput(output.name, True) for output in everything)
    named = [{"name": "third"}, {"name": "first", "parameters": {"binary_data": True}}]
    assert outputs(outputs=named) == (RequestedOutput("third", False), RequestedOutput("first", True))
    named = [{"name": "third"}, {"name": "first", "parameters": {"binary_data": False}}]
    assert outputs(outputs=named, parameters=binary) == (
        RequestedOutput("third", True),
        RequestedOutput("first", False),
    )


COMPRESS = {"gzip": gzip.compress, "deflate": zlib.compress}


def sent_request(content: bytes = b"", pieces: int = 1, **headers: str) -> Request:
    """A request whose body comes in so many pieces."""
    size = -(-len(content) // pieces) or 1
    parts = [content[start : start + size] for start in range(0, len(content), size)] or [b""]
    sent = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]

    async def receive():
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    return Request({"type": "http", "method": "POST", "path": "/", "headers": sent}, receive)


def parts_read(content: bytes, pieces: int = 1, most: int = 1_000_000, **headers: str) -> tuple[bytes, bytes]:
    json, binary = asyncio.run(read_parts(sent_request(content, pieces, **headers), most))
    return b"".join(json), binary


def refused(content: bytes, most: int = 1_000_000, **headers: str) -> ApiError:
    with pytest.raises(ApiError) as raised:
        parts_read(content, 1, most, **headers)
    return raised.value


@given(st.binary(max_size=60), st.data(), st.sampled_from([None, *COMPRESS]), st.integers(1, 7))
def test_a_body_is_divided_where_the_header_says_however_it_comes(content, data, encoding, pieces):
    length = data.draw(st.integers(0, len(content)))
    headers = {"inference_header_content_length": str(length)} | ({"content_encoding": encoding} if encoding else {})
    sent = COMPRESS[encoding](content) if encoding else content
    assert parts_read(sent, pieces, **headers) == (content[:length], content[length:])


@pytest.mark.parametrize("encoding", COMPRESS)
def test_a_bomb_is_refused_long_before_it_is_whole(encoding):
    bomb = COMPRESS[encoding](b"\0" * 100_000_000)
    tracemalloc.start()
    error = refused(bomb, 600_000, content_encoding=encoding)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    sentence = "body is longer once it is decompressed, but must be at most 600000 bytes"
    assert (error.status, str(error)) == (413, sentence)
    assert peak < 600_000 + 4 * PIECE_BYTES
    assert refused(bytes(600_001), 600_000).status == 413


@pytest.mark.parametrize("encoding", COMPRESS)
@given(data=st.data())
def test_a_broken_stream_is_refused(encoding, data):
    whole = COMPRESS[encoding](b"a text that is compressed")
    cut = data.draw(st.integers(0, len(whole) - 1))
    for broken in (whole[:cut], whole + b"\0", whole + whole, b"no stream at all"):
        error = refused(broken, content_encoding=encoding)
        assert error.status == 400 and str(error).startswith("body cannot be decompressed: ")


def test_types_that_a_page_of_another_website_can_send_unasked_are_refused():
    for headers in (
        {"content_type": "application/json"},
        {"content_type": "application/octet-stream"},
        {"content_type": "Application/JSON; charset=utf-8", "origin": "http://elsewhere"},
        {},
    ):
        check_type(sent_request(**headers))
    for headers in (
        {"content_type": "text/plain"},
        {"origin": "http://elsewhere"},
        {"content_type": "multipart/form-data"},
    ):
        with pytest.raises(ApiError, match="must be application/json or application/octet-stream") as raised:
            check_type(sent_request(**headers))
        assert raised.value.status == 415


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
    assert set(service.root.openapi()["paths"]) == set(PATHS)


def test_a_version_that_is_replaced_while_it_answers_is_not_found(service):
    service.endpoint.version = "4"
    assert service.infer(TWO).json()["model_version"] == "4"
    response = service.infer(TWO, path="/v2/models/echo/versions/3/infer")
    assert response.status_code == 404 and "version '3'" in error_of(response)


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

    binary = {"properties": {"binary_data_output": parameters["binary_data_output"]}}
    check_body(binary, {}, read_parameters_of(service))
    for name, most in (("inputs", properties["inputs"]["maxItems"]), ("outputs", properties["outputs"]["maxItems"])):
        status, content = read({**usual, name: [{"name": "first"}] * (most + 1)})
        assert status == 400 and f"of at most {most}" in content["error"]
    assert read({"inputs": [INPUT][: properties["inputs"]["minItems"] - 1]})[0] == 400
    assert read({"inputs": [INPUT] * properties["inputs"]["minItems"]})[0] == 200


def read_parameters_of(service):
    """Reads parameters, and whether the answer is binary."""

    def read(parameters):
        response = service.infer({"inputs": [INPUT], "outputs": [{"name": "first"}], "parameters": parameters})
        good = response.status_code == 200
        return response.status_code, response.headers["content-type"] if good else response.json()

    return read


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


def test_the_best_classes_come_with_score_and_number_best_first():
    scores, classes = numbers("scores", "FP32", [[0.25, 0.5, 0.25], [1.0, 0.0, 2.0]]), ("red", "green", "blue")
    expected = ("0.500000:1:green", "0.250000:0:red", "2.000000:2:blue", "1.000000:0:red")
    assert best_classes(scores, classes, 2) == texts("scores", expected, (2, 2))
    assert best_classes(scores, classes, 99).shape == (2, 3)
    assert best_classes(scores, (), 1) == texts("scores", ("0.500000:1", "2.000000:2"), (2, 1))
