"""The tokens system as a BentoML service: `bentoml serve pliant.serving.tokens.service:TokensService`."""

from __future__ import annotations

from pliant.serving.bento.hosting import host_app, hosted
from pliant.serving.tokens.api import create_app, create_root

TEXT = "Classifies images before a deadline, with as many tokens per image as the load allows. See /docs."

app = host_app(create_app)
TokensService = hosted("tokens", __name__, TEXT, app, root=create_root(app))
