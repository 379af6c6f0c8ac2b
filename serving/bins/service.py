"""The bins system as a BentoML service: `bentoml serve pliant.serving.bins.service:BinsService`."""

from __future__ import annotations

from pliant.serving.bento.hosting import host_app, hosted
from pliant.serving.bins.api import create_app

TEXT = "Embeds and classifies texts before a deadline, each in a runtime made for its length. See /docs."

app = host_app(create_app)
# At the root, where clients of text-embeddings-inference look. BentoML's /livez, /readyz, /healthz and /metrics come first.
BinsService = hosted("bins", __name__, TEXT, app, "/")
