"""What every service has at its root: the page for trying it, and one description of all that is mounted."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from pliant import systems
from pliant.serving.http.pages import TRY, front, policy

BASES = {name: "/" if name == "bins" else "/v1" for name in systems.names()}
of_systems = pytest.mark.parametrize("system", systems.names())


def apps(system: str):
    api = systems.system(system).part("serving", "api")
    app = api.create_app(Path(__file__).parent)
    return app, None if system == "bins" else api.create_root(app)


async def get(system: str, path: str) -> httpx.Response:
    app, root = apps(system)
    app.state.endpoint = SimpleNamespace(status=lambda: {"ready": True})
    transport = httpx.ASGITransport(front(system, app, BASES[system], root))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        return await client.get(path)


@of_systems
async def test_the_page_names_its_system_and_may_fetch_from_its_own_service_alone(system):
    response = await get(system, "/")
    rules = response.headers["content-security-policy"]
    assert rules == policy(response.text) and "default-src 'none'" in rules and "connect-src 'self'" in rules
    assert f'data-system="{system}" data-base="{BASES[system].rstrip("/")}"' in response.text
    assert "{{" not in response.text


@of_systems
async def test_docs_and_status_are_at_the_same_paths_with_all_that_is_mounted(system):
    assert (await get(system, "/status")).json() == {"ready": True}
    swagger = re.search(r'src="(\S+)swagger-ui-bundle.js"', (await get(system, "/docs")).text)
    base = BASES[system].rstrip("/")
    assert swagger is not None and swagger[1] == f"{base}/swagger/".lstrip("/")
    app, root = apps(system)
    page, parts = (await get(system, "/openapi.json")).json(), [app.openapi(), *([root.openapi()] if root else [])]
    assert len(page["paths"]) == sum(len(part["paths"]) for part in parts)
    assert f"{base}/status" in page["paths"]
    for part in parts:  # no schema of the one has taken the name of another
        for name, schema in part.get("components", {}).get("schemas", {}).items():
            assert page["components"]["schemas"][name] == schema, name


def test_the_page_loads_nothing_and_writes_what_services_say_as_text():
    page = TRY.read_text("utf-8")
    assert not re.search(r"https?://|innerHTML|localStorage|sessionStorage|cookie|\bon\w+=", page)
    fields = re.findall(r'<(?:input|select|textarea) id="(\w+)"', page)
    assert fields and all(f'<label for="{field}"' in page for field in fields)
