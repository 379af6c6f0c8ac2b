"""Requests are read as the protocol says; what does not fit the model or does not add up names its field."""

from __future__ import annotations

import asyncio
import gzip
import json
import math
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from pliant.errors import InputError
from pliant.serving.http.api_errors import ApiError
from pliant.serving.http.oip import request as oip_request
from pliant.serving.http.oip.models import RequestedOutput
from pliant.serving.http.oip.request import MAX_TENSORS, PIECE_BYTES, check_type, read_parts, read_request
from pliant.serving.http.oip.tensors import BYTES, numbers, to_binary, to_json
from tests.fixtures.http.oip import MAX_COUNT, MODEL, byte_tensor, text_tensor
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


def request(content: bytes = b"", pieces: int = 1, **headers: str) -> Request:
    """A request whose body comes in so many pieces."""
    size = -(-len(content) // pieces) or 1
    parts = [content[start : start + size] for start in range(0, len(content), size)] or [b""]
    sent = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]

    async def receive():
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    return Request({"type": "http", "method": "POST", "path": "/", "headers": sent}, receive)


def parts_read(content: bytes, pieces: int = 1, most: int = 1_000_000, **headers: str) -> tuple[bytes, bytes]:
    json, binary = asyncio.run(read_parts(request(content, pieces, **headers), most))
    return b"".join(json), binary


def error_of(content: bytes, most: int = 1_000_000, **headers: str) -> ApiError:
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
def test_a_bomb_is_refused_long_before_it_is_whole(encoding, monkeypatch):
    sizes = []
    step = oip_request._next

    def counted(stream, data):
        sizes.append(len(part := step(stream, data)))
        return part

    monkeypatch.setattr(oip_request, "_next", counted)
    bomb = COMPRESS[encoding](b"\0" * 100_000_000)
    error = error_of(bomb, 600_000, content_encoding=encoding)
    assert (error.status, str(error)) == (
        413,
        "body is longer once it is decompressed, but must be at most 600000 bytes",
    )
    assert sum(sizes) <= 600_000 + PIECE_BYTES
    assert error_of(bytes(600_001), 600_000).status == 413


@pytest.mark.parametrize("encoding", COMPRESS)
@given(data=st.data())
def test_a_broken_stream_is_refused(encoding, data):
    whole = COMPRESS[encoding](b"a text that is compressed")
    cut = data.draw(st.integers(0, len(whole) - 1))
    for broken in (whole[:cut], whole + b"\0", whole + whole, b"no stream at all"):
        error = error_of(broken, content_encoding=encoding)
        assert error.status == 400 and str(error).startswith("body cannot be decompressed: ")


def test_types_that_a_page_of_another_website_can_send_unasked_are_refused():
    for headers in (
        {"content_type": "application/json"},
        {"content_type": "application/octet-stream"},
        {"content_type": "Application/JSON; charset=utf-8", "origin": "http://elsewhere"},
        {},
    ):
        check_type(request(**headers))
    for headers in (
        {"content_type": "text/plain"},
        {"origin": "http://elsewhere"},
        {"content_type": "multipart/form-data"},
    ):
        with pytest.raises(ApiError, match="must be application/json or application/octet-stream") as raised:
            check_type(request(**headers))
        assert raised.value.status == 415
