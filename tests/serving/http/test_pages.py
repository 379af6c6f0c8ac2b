"""What every service has at its root: the page for trying it, and one description of all that is mounted."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from pliant import systems
from pliant.serving.http.pages import TRY, front, policy


@pytest.mark.parametrize("system", systems.names())
async def test_page_docs_and_status_are_at_the_same_paths_of_every_service(system):
    api, base = systems.system(system).part("serving", "api"), "" if system == "bins" else "/v1"
    app = api.create_app(Path(__file__).parent)
    root = api.create_root(app) if base else None
    app.state.endpoint = SimpleNamespace(status=lambda: {"ready": True})
    transport = httpx.ASGITransport(front(system, app, base or "/", root))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        page, docs, described, status = [await client.get(path) for path in ("/", "/docs", "/openapi.json", "/status")]
    rules = page.headers["content-security-policy"]
    assert rules == policy(page.text) and "default-src 'none'" in rules and "connect-src 'self'" in rules
    assert f'data-system="{system}" data-base="{base}"' in page.text and "{{" not in page.text
    assert f'src="{f"{base}/swagger".lstrip("/")}/swagger-ui-bundle.js"' in docs.text
    assert status.json() == {"ready": True}
    parts, whole = [app.openapi(), *([root.openapi()] if root else [])], described.json()
    assert len(whole["paths"]) == sum(len(part["paths"]) for part in parts) and f"{base}/status" in whole["paths"]
    for part in parts:  # no schema of the one has taken the name of another
        for name, schema in part.get("components", {}).get("schemas", {}).items():
            assert whole["components"]["schemas"][name] == schema, name


def test_the_page_loads_nothing_and_labels_its_fields():
    page = TRY.read_text("utf-8")
    assert not re.search(r"https?://|innerHTML|localStorage|sessionStorage|cookie|<\w[^>]* on\w+=", page)
    fields = re.findall(r'<(?:input|select|textarea) id="(\w+)"', page)
    assert fields and all(f'<label for="{field}"' in page for field in fields)
    assert fields[-1] == "key", "the example comes first: most services that are tried have no keys"
