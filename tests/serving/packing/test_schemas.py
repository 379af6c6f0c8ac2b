"""The OpenAPI page documents what the service takes and answers, and names every status of a route."""

from __future__ import annotations

from dataclasses import replace

import pytest
from starlette.datastructures import Headers

from pliant.errors import InputError
from serving.http.api_errors import ApiError
from serving.packing import schemas
from serving.packing.api import create_app
from serving.packing.fields import FIELDS, read_request
from serving.packing.schemas import route_options
from serving.packing.settings import PackingSettings
from tests.fixtures.documented import body_schema, check_answer, check_body, example
from tests.fixtures.packing.in_process import publish, serving
from tests.fixtures.registry import FolderRegistry


@pytest.mark.parametrize("path", ["/completions", "/chat/completions"])
def test_a_route_that_takes_a_body_names_its_errors(path):
    options = route_options(path)
    assert options["methods"] == ["POST"]
    assert set(options["responses"]) == {200, 400, 404, 408, 413, 415, 429, 500, 503}
    assert options["openapi_extra"]["requestBody"]["required"]


@pytest.mark.parametrize("path", ["/models", "/models/{model:path}"])
def test_a_route_without_a_body_is_a_get(path):
    options = route_options(path)
    assert options["methods"] == ["GET"] and set(options["responses"]) == ({200, 404} if "{" in path else {200})
    assert ("openapi_extra" in options) is ("{" in path)


@pytest.mark.parametrize(
    ("path", "usual"),
    [
        ("/completions", {"prompt": "A tale"}),
        ("/chat/completions", {"messages": [{"role": "user", "content": "A tale"}]}),
    ],
)
def test_a_request_is_taken_within_the_documented_limits_of_its_fields(path, usual, tmp_path):
    (prompt,) = usual

    def read(fields):
        try:
            request = read_request(fields, Headers(), prompt, PackingSettings())
        except (InputError, ApiError) as error:
            return getattr(error, "status", 400), str(error)
        # A name says which field is to blame, and the seed is drawn where none is given.
        return 200, replace(request, max_tokens_name="", sampling=replace(request.sampling, seed=0))

    schema = body_schema(create_app(tmp_path), path)
    assert check_body(schema, usual, read, ("prompt", "messages", "top_logprobs", "tools", "tool_choice")) == {400}
    assert read({**usual, "stream": True, "stream_options": {"include_usage": True}})[0] == 200


def test_prompts_and_messages_come_in_every_documented_shape(tmp_path):
    page = create_app(tmp_path)

    def taken(prompt, value):
        try:
            return read_request({prompt: value}, Headers(), prompt, PackingSettings())
        except (InputError, ApiError):
            return None

    ids = body_schema(page, "/completions")["properties"]["prompt"]["oneOf"][1]
    for length in range(3):
        assert (taken("prompt", [5] * length) is not None) is (length >= ids["minItems"])
        assert (taken("prompt", [[5] * length, "a text"]) is not None) is (length >= ids["minItems"])
    messages = body_schema(page, "/chat/completions")["properties"]["messages"]
    message = {"role": "user", "content": "A tale"}
    for length in range(3):
        assert (taken("messages", [message] * length) is not None) is (length >= messages["minItems"])
    for shape in messages["items"]["oneOf"]:
        usual = {name: example(shape["properties"][name]) for name in shape["required"]}
        for role in shape["properties"]["role"]["enum"]:
            assert taken("messages", [{**usual, "role": role}])
        for name in shape["required"]:
            assert not taken("messages", [{key: value for key, value in usual.items() if key != name}])
    assert not taken("messages", [{**message, "role": "unheard of"}])


def test_answers_models_and_status_have_the_documented_fields_and_no_other(tmp_path):
    registry = FolderRegistry(tmp_path)
    publish(registry)
    with serving(registry) as service:
        check_answer(schemas.Completion, service.complete(n=2).json())
        check_answer(schemas.ChatCompletion, service.chat().json())
        check_answer(schemas.OpenaiModels, service.get("/models").json())
        check_answer(schemas.Status, service.status())


@pytest.mark.parametrize(
    ("path", "usual"),
    [
        ("/completions", {"prompt": "A tale"}),
        ("/chat/completions", {"messages": [{"role": "user", "content": "A tale"}]}),
    ],
)
def test_the_documented_defaults_are_what_a_request_gets_that_names_nothing(path, usual, tmp_path):
    (prompt,) = usual
    fields = {**usual, "seed": 7}
    expected = read_request(fields, Headers(), prompt, PackingSettings())
    properties = body_schema(create_app(tmp_path), path)["properties"]
    defaults = {name: schema["default"] for name, schema in properties.items() if "default" in schema}
    named = {
        "temperature",
        "top_p",
        "top_k",
        "n",
        "stream",
        "utility",
        "offline",
        "min_p",
        "min_tokens",
        "ignore_eos",
        "priority",
    }
    named |= {"repetition_penalty", "frequency_penalty", "presence_penalty", "priority"}
    assert set(defaults) == named | (
        {"echo"} if prompt == "prompt" else {"logprobs", "top_logprobs", "tool_choice", "parallel_tool_calls"}
    )
    for name, value in defaults.items():
        assert read_request({**fields, name: value}, Headers(), prompt, PackingSettings()) == expected
    assert set(properties) == set(FIELDS[prompt]), "every field that is taken is documented"


def test_the_page_documents_the_models_name_in_the_path_and_each_routes_answer(tmp_path):
    page = create_app(tmp_path).openapi()
    name = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}
    assert page["paths"]["/models/{model}"]["get"]["parameters"] == [name]
    documented = {
        (path, method): (spec["summary"], spec["responses"]["200"]["content"]["application/json"]["schema"]["$ref"])
        for path, methods in page["paths"].items()
        for method, spec in methods.items()
        if spec.get("tags") == ["openai"]
    }
    assert {route: answer.rpartition("/")[2] for route, (_, answer) in documented.items()} == {
        ("/completions", "post"): "Completion",
        ("/chat/completions", "post"): "ChatCompletion",
        ("/models", "get"): "OpenaiModels",
        ("/models/{model}", "get"): "OpenaiModel",
    }
    assert all(summary for summary, _ in documented.values())
    errors = page["paths"]["/completions"]["post"]["responses"]
    assert "Retry-After" in errors["429"]["description"] and "Retry-After" in errors["503"]["description"]
    for code in ("400", "500"):
        assert errors[code]["content"]["application/json"]["schema"]["$ref"].endswith("OpenaiErrorAnswer")
