"""The routes of bins: where they are, how they are documented, and in which shape each tells an error."""

from __future__ import annotations

import json

import pytest

from serving.bins.api import create_app
from serving.http.api_errors import ApiError
from serving.http.texts import TEXT_BYTES


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return create_app(tmp_path_factory.mktemp("swagger")).openapi()


ROUTES = {
    "/status": "get",
    "/refresh": "post",
    "/embed": "post",
    "/predict": "post",
    "/info": "get",
    "/health": "get",
    "/v1/embeddings": "post",
    "/v1/models": "get",
    "/{task}/embed": "post",
    "/{task}/predict": "post",
    "/{task}/info": "get",
    "/{task}/health": "get",
    "/{task}/v1/embeddings": "post",
}


def test_every_route_is_at_the_root_and_below_each_stream_except_the_list_of_streams(page):
    assert {path: next(iter(operations)) for path, operations in page["paths"].items()} == ROUTES
    assert all(len(operations) == 1 for operations in page["paths"].values())


TASK = {"name": "task", "in": "path", "required": True, "schema": {"type": "string"}}
HEADER = {"name": "x-pliant-deadline", "in": "header", "required": False, "schema": {"type": "number"}}


@pytest.mark.parametrize("path", [path for path in ROUTES if path not in ("/status", "/refresh")])
def test_each_route_names_its_api_its_parameters_and_the_errors_of_its_shape(page, path):
    operation = page["paths"][path][ROUTES[path]]
    openai, posted = "/v1/" in path, ROUTES[path] == "post"
    assert operation["tags"] == ["openai" if openai else "text-embeddings-inference"]
    expected = ([TASK] if path.startswith("/{task}") else []) + ([HEADER] if posted else [])
    assert operation.get("parameters", []) == expected
    statuses = {"200", "400", "404", "413", "422", "424", "429", "503"} if posted else {"200"}
    assert set(operation["responses"]) == statuses
    for status in statuses - {"200"}:
        schema = operation["responses"][status]["content"]["application/json"]["schema"]
        assert schema == {"$ref": f"#/components/schemas/{'OpenaiErrorAnswer' if openai else 'TeiError'}"}
    answer = operation["responses"]["200"].get("content", {}).get("application/json", {}).get("schema", {})
    assert bool(answer) is not path.endswith("/health")


def test_the_bodies_are_documented_with_their_limits_and_defaults(page):
    text = {"type": "string", "description": f"at least one visible character, at most {TEXT_BYTES} bytes of UTF-8"}
    texts = {"oneOf": [text, {"type": "array", "items": text, "minItems": 1}], "example": "What is Deep Learning?"}
    deadline = {
        "type": "number",
        "exclusiveMinimum": 0,
        "description": "seconds from arrival; else the header x-pliant-deadline, else the stream's SLO",
    }
    cut = {
        "truncate": {"type": "boolean", "nullable": True, "default": True},
        "truncation_direction": {"type": "string", "enum": ["Left", "Right"], "default": "Right"},
        "deadline": deadline,
    }

    def body(path: str):
        content = page["paths"][path]["post"]["requestBody"]
        assert content["required"] is True
        return content["content"]["application/json"]["schema"]

    assert body("/embed") == {
        "type": "object",
        "required": ["inputs"],
        "properties": {"inputs": texts, "normalize": {"type": "boolean", "default": True}, **cut},
    }
    predict = body("/predict")
    assert predict["required"] == ["inputs"]
    assert list(predict["properties"]) == ["inputs", "raw_scores", "parameters", *cut]
    assert predict["properties"]["raw_scores"]["default"] is False
    assert {name: predict["properties"][name] for name in cut} == cut
    openai = body("/v1/embeddings")
    assert openai["required"] == ["input"]
    assert list(openai["properties"]) == ["input", "model", "encoding_format", "deadline"]
    assert (openai["properties"]["input"], openai["properties"]["deadline"]) == (texts, deadline)
    for path in ("/embed", "/predict", "/v1/embeddings"):
        assert body("/{task}" + path) == body(path)


@pytest.mark.parametrize(
    ("path", "keys"),
    [
        ("/refresh", {"code", "field", "message"}),
        ("/status", {"code", "field", "message"}),
        ("/metrics", {"code", "field", "message"}),
        ("/v1/embeddings", {"message", "type", "param", "code"}),
        ("/mails/v1/embeddings", {"message", "type", "param", "code"}),
        ("/v1/models", {"message", "type", "param", "code"}),
        ("/embed", None),
        ("/", None),
        ("/mails/predict", None),
    ],
)
def test_who_is_turned_away_before_a_route_is_told_in_the_shape_of_its_path(tmp_path, path, keys):
    response = create_app(tmp_path).state.shape_of(path)(ApiError(503, "failed", "lost", "field"))
    content = json.loads(response.body)
    assert response.status_code == 503
    if keys is None:
        assert content == {"error": "lost", "error_type": "Unhealthy"}
    else:
        assert set(content["error"]) == keys
