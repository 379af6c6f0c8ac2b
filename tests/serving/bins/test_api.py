"""The routes of bins: where they are, how they are documented, and in which shape each tells an error."""

from __future__ import annotations

import json

import pytest

from pliant.serving.bins.api import create_app
from pliant.serving.http.api_errors import ApiError
from pliant.serving.http.oip.routes import PATHS


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return create_app(tmp_path_factory.mktemp("swagger")).openapi()


POSTED = (
    *("/embed", "/embed_all", "/embed_sparse", "/predict", "/rerank", "/similarity", "/tokenize", "/decode"),
    *("/v1/embeddings", "/v1/rerank", "/v2/rerank"),
)
BELOW = {**dict.fromkeys(POSTED, "post"), "/info": "get", "/health": "get"}
ROUTES = {
    "/status": "get",
    "/refresh": "post",
    "/v1/models": "get",
    **BELOW,
    **{"/{task}" + path: method for path, method in BELOW.items()},
}


def test_every_route_is_at_the_root_and_below_each_stream_except_the_list_of_streams(page):
    own = {path: next(iter(operations)) for path, operations in page["paths"].items() if path not in PATHS}
    assert own == ROUTES and set(page["paths"]) == set(ROUTES) | set(PATHS)
    assert all(len(operations) == 1 for operations in page["paths"].values())


@pytest.mark.parametrize(
    ("path", "keys"),
    [
        ("/refresh", {"code", "field", "message"}),
        ("/status", {"code", "field", "message"}),
        ("/metrics", {"code", "field", "message"}),
        ("/v1/embeddings", {"message", "type", "param", "code"}),
        ("/mails/v1/embeddings", {"message", "type", "param", "code"}),
        ("/v1/models", {"message", "type", "param", "code"}),
        ("/v1/rerank", {"message", "type", "param", "code"}),
        ("/mails/v2/rerank", {"message", "type", "param", "code"}),
        ("/mails/rerank", None),
        ("/embed", None),
        ("/v2/models/mails/infer", None),
        ("/v2", None),
        ("/", None),
        ("/mails/predict", None),
    ],
)
def test_who_is_turned_away_before_a_route_is_told_in_the_shape_of_its_path(tmp_path, path, keys):
    response = create_app(tmp_path).state.shape_of(path)(ApiError(503, "failed", "lost", "field"))
    content = json.loads(response.body)
    assert response.status_code == 503
    if path.startswith("/v2"):
        assert content == {"error": "lost"}
    elif keys is None:
        assert content == {"error": "lost", "error_type": "Unhealthy"}
    else:
        assert set(content["error"]) == keys
