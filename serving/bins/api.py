"""The HTTP routes of the bins service and their documentation. They call the endpoint in `app.state.endpoint`.

Most routes follow text-embeddings-inference (serving/bins/tei.py and the files that it names), those below /v1 OpenAI
(serving/bins/openai.py), those below /v2 the Open Inference Protocol (serving/bins/oip.py), errors included.
"""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI
from starlette.routing import Route

from pliant.serving.bins import oip, openai, tei
from pliant.serving.bins.bodies import Status, options_of
from pliant.serving.http.api_errors import ErrorShape, error_response
from pliant.serving.http.app import Handler, add_refresh, add_status, complete, endpoint_of, guarded, new_app
from pliant.serving.http.oip.response import shape_of
from pliant.serving.http.oip.routes import add_oip, close_oip
from pliant.serving.http.openai import error_response as openai_errors

TEI = {
    "/embed": tei.embed,
    "/predict": tei.predict,
    "/rerank": tei.rerank,
    "/similarity": tei.similarity,
    "/embed_all": tei.embed_all,
    "/embed_sparse": tei.embed_sparse,
    "/tokenize": tei.tokenize,
    "/decode": tei.decode,
    "/info": tei.info,
    "/health": tei.health,
}
OPENAI = {
    "/v1/embeddings": openai.embeddings_route,
    "/v1/rerank": tei.rerank_documents,
    "/v2/rerank": tei.rerank_documents,  # where clients of Cohere's second version look
    "/v1/models": openai.models,
}
FREQUENT = ("/embed", "/predict", "/v1/embeddings")
GET_PATHS = ("/info", "/health", "/v1/models")
ROOT_ONLY = ("/v1/models",)
BASE = "/{task}"


def create_app(swagger: Path) -> FastAPI:
    """Return the app. `swagger` is a folder with the files of Swagger UI, so that the page needs no internet."""
    app = new_app("Pliant bins")
    add_status(app, Status)
    refresh = add_refresh(app)
    handlers = _handlers()
    for path, handler in handlers.items():
        app.add_api_route(path, handler, name=path, **options_of(path))
    any_head = guarded(tei.answer, endpoint_of, tei.error_response)
    hot = {path: handler for path, handler in handlers.items() if not path.endswith(GET_PATHS)}
    hot |= add_oip(app, oip.SERVED)
    app = complete(app, {**hot, "/refresh": refresh, "/": any_head}, swagger, _shape_of)
    # Last: a wrong method for /status gets the Allow of the first path that fits, and this one fits any of one part.
    app.router.routes.append(Route(BASE, any_head, methods=["POST"]))
    close_oip(app)
    return app


def _shape_of(path: str) -> ErrorShape:
    if path in ("/refresh", "/status", "/metrics"):
        return error_response
    return openai_errors if path.endswith(tuple(OPENAI)) else shape_of(path, tei.error_response)


def _handlers() -> dict[str, Handler]:
    """Return the handlers by path; the most frequent, which match fastest, come first."""
    handlers = {path: guarded(handle, endpoint_of, tei.error_response) for path, handle in TEI.items()}
    handlers |= {path: guarded(handle, endpoint_of, openai_errors) for path, handle in OPENAI.items()}
    rest = [path for path in handlers if path not in FREQUENT]
    ordered = [(base, path) for paths in (FREQUENT, rest) for base in ("", BASE) for path in paths]
    return {base + path: handlers[path] for base, path in ordered if not base or path not in ROOT_ONLY}
