"""What the routes of tokens document, and what an answer, the tasks and the status hold as a whole."""

from __future__ import annotations

import base64

import pytest

from pliant.serving.tokens.settings import TokensSettings
from tests.fixtures.tokens.http import ask, png, serve


@pytest.mark.parametrize(
    ("version", "sentence"),
    [(0, "version is 0"), (True, "version is True"), (1.0, "version is 1.0"), ("champion", "version is 'champion'")],
)
def test_a_version_is_a_whole_number_from_one_on(registry, version, sentence):
    async def check(service):
        response = await service.client.post("/tasks", json={"name": "digits", "version": version})
        assert response.status_code == 422
        assert response.json()["error"]["message"].startswith(f"{sentence}, but must be ")
        for fields in ({"version": 1}, {"version": None}, {"alias": "champion"}, {}):
            answer = await service.client.post("/tasks", json={"name": "digits", **fields})
            assert answer.status_code == 200, answer.text

    serve(registry, check)


def test_numbers_of_a_form_are_texts_and_its_fields_and_files_are_limited(registry):
    async def check(service):
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

    serve(registry, check)


def test_an_image_comes_in_base64_of_any_length_and_nothing_else(registry):
    async def check(service):
        for text, status in ((base64.b64encode(png()).decode(), 200), ("%%%%", 422), ("YQ", 422), ("", 422)):
            response = await ask(service, image=text)
            assert response.status_code == status, response.text

    serve(registry, check, TokensSettings(max_body_bytes=200_000))
