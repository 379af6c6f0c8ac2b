"""The OpenAPI pages of all services are valid, so that generators of clients and fuzzers can read them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from fastapi import FastAPI

from pliant import systems


def references(value: object) -> list[str]:
    items = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    own = [value["$ref"]] if isinstance(value, dict) and isinstance(value.get("$ref"), str) else []
    return own + [reference for item in items for reference in references(item)]


def pages(system: str, folder: Path) -> list[FastAPI]:
    """The apps of a system that have a page: the one at /v1, and the one at the root, if there is one."""
    api = systems.system(system).part("serving", "api")
    app = api.create_app(folder)
    return [app, api.create_root(app)] if hasattr(api, "create_root") else [app]


PAGES = [(system, place) for system in systems.names() for place in (0, 1) if (system, place) != ("bins", 1)]


@pytest.mark.parametrize(("system", "place"), PAGES)
def test_every_parameter_of_a_path_is_described_once_and_every_reference_resolves(system, place, tmp_path: Path):
    page = json.loads(json.dumps(pages(system, tmp_path)[place].openapi()))
    for path, operations in page["paths"].items():
        for method, operation in operations.items():
            described = [one["name"] for one in operation.get("parameters", []) if one["in"] == "path"]
            assert sorted(described) == sorted(re.findall(r"\{(\w+)\}", path)), f"{method} {path}"
            in_path = [entry for entry in operation.get("parameters", []) if entry["in"] == "path"]
            assert all(entry["required"] for entry in in_path), f"{method} {path}"  # as OpenAPI demands
            assert operation.get("requestBody", {"required": True})["required"], f"{method} {path}"
            assert operation["responses"] and "{" not in re.sub(r"\{\w+\}", "", path)
    for reference in references(page):
        value = page
        for part in reference.removeprefix("#/").split("/"):
            value = value[part]
    names = [operation["operationId"] for operations in page["paths"].values() for operation in operations.values()]
    assert len(names) == len(set(names))
