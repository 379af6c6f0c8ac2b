"""The bins service over HTTP: which address does what, and their documentation.

Knows HTTP; what is done it leaves to the endpoint, which the service puts into `app.state.endpoint` when it is up. Most
routes speak as text-embeddings-inference does (serving/bins/tei.py), some as OpenAI (serving/bins/openai.py), errors
included.
"""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from serving.bins import openai, tei
from serving.bins.question import Endpoint
from serving.bins.schemas import Status, documents
from serving.http.api_errors import json_response
from serving.http.app import Handler, add_refresh, complete, new_app
from serving.http.questions import guarded

TEI = {"/embed": tei.embed, "/predict": tei.predict, "/info": tei.info, "/health": tei.health}
OPENAI = {"/v1/embeddings": openai.embeddings_of, "/v1/models": openai.models}
POSTED = ("/embed", "/predict", "/v1/embeddings")
BASE = "/{task}"


def create_app(swagger: Path) -> FastAPI:
    """The app; `swagger` is a folder with Swagger UI's files, so that its page needs no internet."""
    app = new_app("Pliant bins")
    app.add_api_route("/status", _status, methods=["GET"], summary="What is served", responses={200: {"model": Status}})
    refresh = add_refresh(app)
    handlers = _handlers()
    for path, handler in handlers.items():
        app.add_api_route(path, handler, name=path, **documents(path, path.endswith(POSTED)))
    whole = guarded(tei.answer, _endpoint, tei.error_response)
    hot = {path: handler for path, handler in handlers.items() if path.endswith(POSTED)}
    return complete(app, {**hot, "/refresh": refresh, "/": whole, BASE: whole}, swagger)


def _handlers() -> dict[str, Handler]:
    """By path, those that are asked most and match fastest first."""
    spoken = {path: guarded(handle, _endpoint, tei.error_response) for path, handle in TEI.items()}
    spoken |= {path: guarded(handle, _endpoint, openai.error_response) for path, handle in OPENAI.items()}
    return spoken | {BASE + path: handler for path, handler in spoken.items() if path != "/v1/models"}


async def _status(request: Request) -> Response:
    return json_response(_endpoint(request).status())


def _endpoint(request: Request) -> Endpoint:
    endpoint: Endpoint = request.app.state.endpoint
    return endpoint
