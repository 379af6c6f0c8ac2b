"""The bins service over HTTP: which address does what, and their documentation.

Knows HTTP; what is done it leaves to the endpoint, which the service puts into `app.state.endpoint` when it is up. Most
routes speak as text-embeddings-inference does (serving/bins_tei.py), some as OpenAI (serving/bins_openai.py), errors
included.
"""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from serving import bins_openai, bins_tei
from serving.app import Handler, add_refresh, complete, new_app
from serving.bins_documents import Status, documents
from serving.bins_question import Endpoint
from serving.questions import guarded
from serving.refusals import json_response

TEI = {"/embed": bins_tei.embed, "/predict": bins_tei.predict, "/info": bins_tei.info, "/health": bins_tei.health}
OPENAI = {"/v1/embeddings": bins_openai.embeddings_of, "/v1/models": bins_openai.models}
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
    whole = guarded(bins_tei.answer, _endpoint, bins_tei.error_response)
    hot = {path: handler for path, handler in handlers.items() if path.endswith(POSTED)}
    return complete(app, {**hot, "/refresh": refresh, "/": whole, BASE: whole}, swagger)


def _handlers() -> dict[str, Handler]:
    """By path, those that are asked most and match fastest first."""
    spoken = {path: guarded(handle, _endpoint, bins_tei.error_response) for path, handle in TEI.items()}
    spoken |= {path: guarded(handle, _endpoint, bins_openai.error_response) for path, handle in OPENAI.items()}
    return spoken | {BASE + path: handler for path, handler in spoken.items() if path != "/v1/models"}


async def _status(request: Request) -> Response:
    return json_response(_endpoint(request).status())


def _endpoint(request: Request) -> Endpoint:
    endpoint: Endpoint = request.app.state.endpoint
    return endpoint
