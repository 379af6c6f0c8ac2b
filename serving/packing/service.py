"""The packing system as a BentoML service: `bentoml serve pliant.serving.packing.service:PackingService`.

What all services share is in serving/bento/hosting.py.
"""

from __future__ import annotations

import bentoml

from pliant.serving.bento.hosting import OPTIONS, HostedService, host_app, with_access
from pliant.serving.packing.api import create_app, create_root

# Seconds until BentoML gives up a request that nothing else ends. A long output after a long wait may take minutes.
TIMEOUT = 3600

app = host_app(create_app)


# At the root, which comes last: /health, and /tokenize where clients of vLLM look.
@with_access(app)
@bentoml.asgi_app(create_root(app), path="/")
@bentoml.asgi_app(app, path="/v1")
@bentoml.service(name="pliant_packing", traffic={"timeout": TIMEOUT}, **OPTIONS)
class PackingService(HostedService):
    """Generates texts with language models, packed into memory by their predicted lengths. See /v1/docs."""

    SYSTEM, APP = "packing", app
