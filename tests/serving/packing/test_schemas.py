"""The OpenAPI page names every status that a route answers."""

from __future__ import annotations

import pytest

from serving.packing.schemas import route_options


@pytest.mark.parametrize("path", ["/completions", "/chat/completions"])
def test_a_route_that_takes_a_body_names_its_errors(path):
    options = route_options(path)
    assert options["methods"] == ["POST"]
    assert set(options["responses"]) == {200, 400, 404, 408, 413, 415, 429, 500, 503}
    assert options["openapi_extra"]["requestBody"]["required"]


@pytest.mark.parametrize("path", ["/models", "/models/{model:path}"])
def test_a_route_without_a_body_is_a_get(path):
    options = route_options(path)
    assert options["methods"] == ["GET"] and set(options["responses"]) == {200}
    assert ("openapi_extra" in options) is ("{" in path)
