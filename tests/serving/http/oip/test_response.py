"""Answers are written as JSON or as binary data, as each output says, and errors as one sentence."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.serving.http.api_errors import ApiError
from pliant.serving.http.oip.models import InferAnswer, InferRequest, RequestedOutput
from pliant.serving.http.oip.response import infer_response
from pliant.serving.http.oip.tensors import from_binary, from_json, numbers, texts
from tests.fixtures.http.oip import MODEL
from tests.serving.http.oip.test_tensors import check_equal, number_tensors, text_tensors


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
