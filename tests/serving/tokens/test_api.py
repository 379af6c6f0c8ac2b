"""What the routes of tokens document, and what an answer, the tasks and the status hold as a whole."""

from __future__ import annotations

import base64

import pytest

from pliant.serving.tokens.settings import TokensSettings
from tests.fixtures.tokens.http import ask, png, serve


def test_every_route_documents_what_it_may_answer(registry):
    async def check(service):
        document = (await service.client.get("/openapi.json")).json()
        responses = {
            f"{method.upper()} {path}": " ".join(sorted(route["responses"]))
            for path, routes in document["paths"].items()
            for method, route in routes.items()
        }
        assert responses == {
            "POST /predict": "200 400 404 413 415 422 429 500 503",
            "GET /tasks": "200",
            "POST /tasks": "200 400 403 404 409 413 415 422 500 503",
            "POST /refresh": "200 403 415 500 503",
            "GET /status": "200",
            "POST /outcomes": "200 400 404 409 413 415 422 429 503",
            "GET /outcomes/alarms": "200 403",
            "DELETE /outcomes/alarms/{id}": "200 403 404 415",
        }
        for routes in document["paths"].values():
            for route in routes.values():
                assert all(answer["description"] for answer in route["responses"].values())

    serve(registry, check)


def test_an_answer_a_task_and_the_status_hold_every_version_and_digest(registry):
    async def check(service):
        answer = (await ask(service)).json()
        assert {name: answer[name] for name in sorted(set(answer) - {"queue_seconds", "id"})} == {
            "batch_size": 1,
            "gamma": 0,
            "label": "zero",
            "on_time": True,
            "probabilities": {"zero": 0.75, "one": 0.125, "two": 0.125},
            "run_seconds": 0.001,
            "task": "digits",
            "versions": {"backbone": 1, "profile": 1, "task": 1},
        }
        labels = {"task": "digits", "task_version": "1", "backbone_version": "1", "profile_version": "1"}
        assert service.counted.get_sample_value("pliant_answers_total", labels) == 1
        catalog = service.catalog
        served = catalog.tasks["digits"]
        accuracy = {str(gamma): share for gamma, share in sorted(served.task.accuracy.items())}
        task = {"name": "digits", "classes": ["zero", "one", "two"], "version": 1, "digest": served.digest}
        assert (await service.client.get("/tasks")).json() == {"tasks": [{**task, "accuracy": accuracy}]}
        status = (await service.client.get("/status")).json()
        assert status["tasks"] == [{**task, "accuracy": accuracy}]
        assert status["backbone"] == {"version": 1, "digest": catalog.backbone_digest, "source": catalog.source}
        profile = {"version": 1, "digest": catalog.profile_digest, "device": "a device", "precision": None}
        assert status["profile"] == profile
        assert status["devices"] == [{"name": "cpu", "up": True, "fallbacks": []}]
        assert (status["policy"], status["pins"], status["generation"]) == ("default", {}, 1)

    serve(registry, check)


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
