"""Pages of one HTML file, which holds its style and script: a browser lets them fetch nothing from elsewhere.

`front` is what every service has at its root beside its own interface: the page for trying it at `/`, and `/docs`,
`/openapi.json` and `/status`. It is mounted last, so that a request which another route answers never reaches it.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from pliant.serving.http.app import Handler, docs_page, json_response, status

TRY = Path(__file__).with_name("try.html")


def page(path: Path, values: Mapping[str, str] | None = None) -> Handler:
    """Return a route with a page, in which `values` stand for their names in double braces."""
    text = path.read_text("utf-8")
    for name, value in (values or {}).items():
        text = text.replace("{{" + name + "}}", value)
    headers = {"content-security-policy": policy(text), "x-content-type-options": "nosniff"}

    async def answer(_request: Request) -> Response:
        return HTMLResponse(text, headers=headers)

    return answer


def policy(text: str) -> str:
    """Return the policy by which a browser runs the script of a page, and nothing that a text could smuggle in."""
    script = text.partition("<script>")[2].partition("</script>")[0]
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def front(system: str, app: FastAPI, path: str, root: FastAPI | None) -> FastAPI:
    """Return the routes at the root of a system's service, whose `app` is mounted at `path` beside `root`."""
    base = path.rstrip("/")

    async def openapi(_request: Request) -> Response:
        return json_response(together(app.openapi(), base, root.openapi() if root else {}))

    routes = [
        Route("/", page(TRY, {"system": system, "base": base})),
        Route("/docs", docs_page(f"{base}/swagger".lstrip("/"))),
        Route("/openapi.json", openapi),
        Route("/status", status),
    ]
    front = FastAPI(title=app.title, docs_url=None, redoc_url=None, openapi_url=None)
    front.router.routes += routes
    front.state = app.state
    return front


def together(own: Mapping[str, Any], base: str, root: Mapping[str, Any]) -> dict[str, Any]:
    """Return the OpenAPI description of an app that is mounted at `base`, beside the paths and schemas of the `root`."""
    schemas = [each.get("components", {}).get("schemas", {}) for each in (root, own)]
    paths = {f"{base}{path}": operations for path, operations in own["paths"].items()} | root.get("paths", {})
    described = {name: value for name, value in own.items() if name != "servers"}
    return {**described, "paths": paths, "components": {"schemas": {**schemas[0], **schemas[1]}}}
