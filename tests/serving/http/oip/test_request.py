"""Requests are read as the protocol says; what does not fit the model or does not add up names its field."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.errors import InputError
from pliant.serving.http.api_errors import ApiError
from pliant.serving.http.oip.binary import to_binary
from pliant.serving.http.oip.models import RequestedOutput
from pliant.serving.http.oip.request import MAX_TENSORS, read_request
from pliant.serving.http.oip.tensors import BYTES, numbers, to_json
from tests.fixtures.http.oip import CLASSIFIER, MAX_COUNT, MODEL, byte_tensor, text_tensor
from tests.serving.http.oip.test_tensors import JSON, number_tensors, text_tensors

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


ENTRY = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["first", "second", "other"]) | JSON,
        "datatype": st.sampled_from([BYTES, "FP32", "INT8", "BF16"]) | JSON,
        "shape": st.lists(st.integers(-1, 4), max_size=2) | JSON,
        "data": st.lists(st.text(max_size=2) | st.integers(-3, 300), max_size=4) | JSON,
        "parameters": st.fixed_dictionaries({}, optional={"binary_data_size": st.integers(-1, 12) | JSON}) | JSON,
    },
)
BODY = st.fixed_dictionaries(
    {},
    optional={
        "id": st.text(max_size=2) | JSON,
        "inputs": st.lists(ENTRY, max_size=3) | JSON,
        "outputs": st.lists(ENTRY, max_size=3) | JSON,
        "parameters": JSON,
    },
)


@given(BODY, st.binary(max_size=12))
def test_whatever_a_body_says_it_is_a_request_or_an_error_of_the_caller(fields, binary):
    try:
        request = read(fields, binary)
    except InputError:
        return
    except ApiError as error:
        assert error.status == 413
        return
    for tensor in request.inputs.values():
        assert len(tensor.elements) == math.prod(tensor.shape)


def changed(**changes):
    return {"inputs": [{**FIRST, **changes}]}


OUTPUT = "outputs[0].parameters"
REFUSED = [
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


@pytest.mark.parametrize(("fields", "name"), REFUSED)
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


def test_bytes_after_a_body_of_json_alone_are_refused():
    with pytest.raises(InputError, match="body is 3 bytes longer"):
        read({"inputs": [FIRST]}, b"abc")


def test_a_tensor_that_the_model_needs_must_be_there():
    needy = replace(CLASSIFIER, inputs=(*CLASSIFIER.inputs, *MODEL.inputs))
    with pytest.raises(InputError, match="inputs is without text"):
        read({"inputs": [FIRST]}, model=needy)
    assert set(read({"inputs": [text_tensor("text", "a")]}, model=needy).inputs) == {"text"}


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


@pytest.mark.parametrize("value", [0, -1, True, 1.0, "1"])
def test_the_number_of_best_classes_is_whole_and_positive(value):
    fields = {"inputs": [text_tensor("text", "a")]}
    with pytest.raises(InputError) as raised:
        read({**fields, "outputs": [{"name": "scores", "parameters": {"classification": value}}]}, model=CLASSIFIER)
    assert raised.value.field == f"{OUTPUT}.classification"
    right = [{"name": "scores", "parameters": {"classification": 2}}]
    (output,) = read({**fields, "outputs": right}, model=CLASSIFIER).outputs
    assert output.top_classes == 2


def test_fields_and_parameters_that_nobody_knows_are_noted():
    parameters = {"volume": 1, "deadline": 1, "timeout": 1, "binary_data_output": False, "colour": 1}
    request = read({"inputs": [FIRST], "parameters": parameters, "model": "x", "id": "7"})
    assert (request.ignored, request.id) == (("model", "colour"), "7")
    assert read({"inputs": [FIRST]}).id is None
