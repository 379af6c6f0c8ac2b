"""The cascade system as a BentoML service: `bentoml serve pliant.serving.cascade.service:CascadeService`."""

from __future__ import annotations

from pliant.serving.bento.hosting import host_app, hosted
from pliant.serving.cascade.api import create_app, create_root

TEXT = "Classifies texts before a deadline, by a small model if it is confident and by larger ones if not. See /docs."

app = host_app(create_app)
CascadeService = hosted("cascade", __name__, TEXT, app, root=create_root(app))
