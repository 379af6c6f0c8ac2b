"""The packing system as a BentoML service: `bentoml serve pliant.serving.packing.service:PackingService`."""

from __future__ import annotations

from pliant.serving.bento.hosting import host_app, hosted
from pliant.serving.packing.api import create_app, create_root

TEXT = "Generates texts with language models, packed into memory by their predicted lengths. See /docs."

app = host_app(create_app)
# A long output after a long wait may take minutes.
PackingService = hosted("packing", __name__, TEXT, app, root=create_root(app), seconds=3600)
