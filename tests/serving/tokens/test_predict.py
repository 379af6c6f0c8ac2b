"""POST /v1/predict in-process, over a fake device: answers, errors, overload."""

from __future__ import annotations

import asyncio
import base64
import math
import random

import pytest
from starlette.requests import Request

from pliant.serving.tokens import api as bodies
from pliant.serving.tokens.api import BASE64_AT_ONCE, PIECE_BYTES, _from_base64, in_pieces, read_request
from tests.fixtures.documented import check_answer
from tests.fixtures.tokens.http import ask, check_good, png
from tests.serving.tokens.test_images import png_header


async def test_a_json_request_gets_label_probabilities_and_how_it_came_about(service):
    answer = (await ask(service)).json()
    assert answer["label"] == "zero"
    assert answer["probabilities"] == {"zero": 0.75, "one": 0.125, "two": 0.125}
    assert answer["on_time"] is True
    assert answer["run_seconds"] == 0.001
    assert {"task": "digits", "gamma": 0, "batch_size": 1}.items() <= answer.items()
    assert answer["queue_seconds"] >= 0
    assert answer["versions"] == {"backbone": 1, "task": 1, "profile": 1}


LARGE = base64.b64encode(png_header(10_000, 10_000)).decode()
BAD_FIELDS = [
    ({"image": base64.b64encode(b"text").decode()}, 422, "image", "image is not readable"),
    ({"image": LARGE}, 422, "image", "image is of 10000 x 10000 = 100000000 pixels"),
    ({"image": "&&&"}, 422, "image", "image is '&&&'"),
    ({"image": 7}, 422, "image", "image is 7"),
    ({"image": None}, 422, "image", "image is missing"),
    ({"task": "dogs"}, 404, "task", "task is 'dogs'"),
    ({"task": 7}, 422, "task", "task is 7"),
    ({"task": None}, 422, "task", "task is missing"),
    ({"deadline": 0}, 422, "deadline", "deadline is 0"),
    ({"deadline": math.nan}, 422, "deadline", "deadline is nan"),
    ({"deadline": 61}, 422, "deadline", "deadline is 61"),
    ({"deadline": None}, 422, "deadline", "deadline is missing"),
    ({"utility": -0.5}, 422, "utility", "utility is -0.5"),
    ({"colour": "red"}, 422, "'colour'", "'colour' is unknown"),
]


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize(("changes", "status", "field", "sentence"), BAD_FIELDS)
async def test_a_bad_field_is_named_with_its_value_and_limit_and_the_next_request_is_served(
    service, changes, status, field, sentence
):
    response = await ask(service, **changes)
    error = response.json()["error"]
    assert (response.status_code, error["field"]) == (status, field)
    assert sentence in error["message"]
    await check_good(service)


async def chunks():
    for _ in range(30):
        yield b"x" * 10_000


FORM = "multipart/form-data; boundary=b"
NAMED = b'--b\r\nContent-Disposition: form-data; name="task-!!"\r\n\r\ndigits\r\n--b--\r\n'
BAD_BODIES = [
    ("application/json", b"{", 400, "body is not JSON"),
    ("application/json", b"\xff\xfe", 400, "body is not JSON"),
    ("application/json", b"[" * 100_000, 400, "body is not JSON"),
    ("application/json", b"[1]", 400, "body is a JSON list"),
    ("application/json", b"", 400, "body is not JSON"),
    ("text/plain", b"hello", 415, "content-type is text/plain"),
    ("", b"hello", 415, "content-type is missing"),
    ("multipart/form-data", b"hello", 400, "body is no multipart form"),
    *((f"{FORM}; charset={name}", NAMED, 400, "body is no multipart form") for name in ("undefined", "punycode")),
    (FORM, b"hello", 400, "body is no multipart form"),
    (FORM, b"--b--\r\n", 422, "image is missing"),
    (FORM, b'--b\r\ncontent-disposition: form-data; name="task"\r\n\r\n' + b"x" * 9999 + b"\r\n--b--\r\n", 400, "Part"),
    (FORM, b'--b\r\ncontent-disposition: form-data; name="task"\r\n\r\na\r\n' * 2 + b"--b--\r\n", 422, "given 2 times"),
    (FORM, b'--b\r\ncontent-disposition: form-data; name="utility"\r\n\r\na\r\n--b--\r\n', 422, "utility is 'a', but"),
    ("application/json", b"x" * 200_001, 413, "body is 200001 bytes"),
    ("application/json", chunks, 413, "body is longer"),
]


@pytest.mark.parametrize(("kind", "body", "status", "sentence"), BAD_BODIES)
async def test_a_bad_body_is_an_error_with_a_message_and_the_next_request_is_served(
    service, kind, body, status, sentence
):
    content = body if isinstance(body, bytes) else body()
    response = await service.client.post("/predict", content=content, headers={"content-type": kind} if kind else {})
    assert response.status_code == status, response.text
    assert sentence in response.json()["error"]["message"]
    await check_good(service)


@pytest.mark.parametrize(("utility", "status", "code"), [(0.125, 429, "full"), (0.25, 503, "late")])
async def test_overload_says_when_to_come_back_and_is_counted(service, utility, status, code):
    response = await ask(service, utility=utility)
    assert response.status_code == status
    assert response.json()["error"]["code"] == code
    assert int(response.headers["retry-after"]) >= 1
    await check_good(service)
    counted = service.counted.get_sample_value
    assert counted("pliant_outcomes_total", {"task": "digits", "outcome": f"dropped_{code}"}) == 1
    assert counted("pliant_outcomes_total", {"task": "digits", "outcome": "on_time"}) == 1
    assert counted("pliant_refusals_total", {"code": code}) == 1


async def test_a_broken_scheduler_is_a_500_for_everyone_and_nobody_waits(service):
    service.scheduler.handle = None
    response = await ask(service)
    assert response.status_code == 500
    assert "the scheduler failed" in response.json()["error"]["message"]


async def test_numbers_of_a_form_are_texts_and_its_fields_and_files_are_limited(service):
    form = {"task": "digits", "deadline": "5", "utility": "2"}
    files = [("image", ("a.png", png()))]
    assert (await service.client.post("/predict", data=form, files=files)).status_code == 200
    for data, sent, status, sentence in (
        ({**form, "deadline": "soon"}, files, 422, "deadline is 'soon'"),
        ({**form, "utility": "-1"}, files, 422, "utility is -1"),
        (form, [*files, ("other", ("b.png", png()))], 400, "body is no multipart form: Too many files"),
        ({**form, **dict.fromkeys("abcdef", "")}, files, 400, "body is no multipart form: Too many fields"),
        ({**form, **dict.fromkeys("abcde", "")}, files, 422, "'a' is unknown"),
        ({**form, "task": "x" * 4097}, files, 400, "body is no multipart form: Part exceeded maximum size"),
        ({**form, "task": "x" * 4096}, files, 404, "task is 'xxx"),
    ):
        response = await service.client.post("/predict", data=data, files=sent)
        assert response.status_code == status, response.text
        assert sentence in response.json()["error"]["message"]


BOUNDARY = "piece"


def form(image: bytes) -> bytes:
    head = f'--{BOUNDARY}\r\ncontent-disposition: form-data; name="%s"%s\r\n\r\n'
    parts = [(head % (name, "")).encode() + value for name, value in (("task", b"digits"), ("deadline", b"2"))]
    parts.append((head % ("image", '; filename="picture"')).encode() + image)
    return b"\r\n".join([*parts, f"--{BOUNDARY}--\r\n".encode()])


def post(body: bytes) -> Request:
    headers = [(b"content-type", f"multipart/form-data; boundary={BOUNDARY}".encode())]

    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    return Request({"type": "http", "method": "POST", "path": "/predict", "headers": headers}, receive)


async def test_a_large_form_gives_the_image_as_it_is():
    image = random.Random(0).randbytes(3 * PIECE_BYTES + 1)
    request = await read_request(post(form(image)), 2 * len(image), 60.0)
    assert (request.image, request.task, request.deadline) == (image, "digits", 2.0)


async def test_a_long_base64_is_decoded_in_parts_to_the_same_bytes():
    for extra in (-3, 0, 3, BASE64_AT_ONCE):
        image = random.Random(2).randbytes(BASE64_AT_ONCE * 3 // 4 + extra)
        assert await _from_base64(base64.b64encode(image).decode()) == image
    for text in ("A" * BASE64_AT_ONCE + "%AAA", "%" * 8):
        with pytest.raises(ValueError, match="base64"):
            await _from_base64(text)


async def test_others_have_a_turn_after_each_piece():
    turns, body, sizes = [], random.Random(1).randbytes(5 * PIECE_BYTES + 1), []
    loop = asyncio.get_running_loop()
    async for piece in in_pieces([body[: 2 * PIECE_BYTES], body[2 * PIECE_BYTES :]]):
        sizes.append((len(piece), len(turns)))
        loop.call_soon(turns.append, None)
    assert sizes == [*((PIECE_BYTES, turn) for turn in range(5)), (1, 5), (0, 6)]


async def test_answers_tasks_and_status_have_the_documented_fields_and_no_other(service):
    image = base64.b64encode(png()).decode()
    response = await service.client.post("/predict", json={"image": image, "task": "digits", "deadline": 5.0})
    check_answer(bodies.Prediction, response.json())
    check_answer(bodies.TaskList, (await service.client.get("/tasks")).json())
    check_answer(bodies.Status, (await service.client.get("/status")).json())
    answer = (await service.client.post("/refresh", json={})).json()
    check_answer(bodies.TokensRefresh, answer)
